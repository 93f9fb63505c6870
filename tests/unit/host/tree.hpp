// SPDX-License-Identifier: Apache-2.0
#pragma once
// A folder of files for a test, gone with it.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>

namespace virtguard {

/// Files written from a list of path and text; also the root that the adapter is given.
class Tree {
  public:
    Tree(std::initializer_list<std::pair<std::string, std::string>> files) {
        std::string name = (std::filesystem::temp_directory_path() / "virtguard-XXXXXX").native();
        if (::mkdtemp(name.data()) == nullptr)
            throw std::runtime_error("mkdtemp");
        root_ = name;
        for (const auto& [path, text] : files)
            write(path, text);
    }
    Tree(const Tree&) = delete;
    Tree& operator=(const Tree&) = delete;
    ~Tree() { std::filesystem::remove_all(root_); }

    void write(const std::string& path, const std::string& text) const {
        const auto file = root_ / path;
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file, std::ios::binary) << text;
    }
    [[nodiscard]] const std::filesystem::path& root() const { return root_; }

  private:
    std::filesystem::path root_;
};

} // namespace virtguard
