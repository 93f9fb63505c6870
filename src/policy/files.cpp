// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <system_error>
#include <utility>

#include "base/file.hpp"
#include "base/text.hpp"
#include "policy/load.hpp"

namespace virtguard::policy {

namespace {

namespace fs = std::filesystem;

std::unexpected<Error> unreadable(const fs::path& path, const std::error_code& error) {
    return fail(Errc::io, "{}: cannot be read: {}", one_line(path.native()), error.message());
}

Result<PolicyText> text_of(const fs::path& path, Result<std::string> read) {
    if (!read)
        return std::unexpected(std::move(read.error()));
    return PolicyText{path.native(), *std::move(read)};
}

bool is_policy_name(std::string_view name) {
    return name.ends_with(".toml") && !name.starts_with('.') && !name.contains(".dpkg-");
}

/// Not there at all; a link to nowhere is a mistake, not an absence.
bool is_absent(const fs::path& path) {
    std::error_code unknown; // then it is for whoever opens it to say
    return fs::symlink_status(path, unknown).type() == fs::file_type::not_found;
}

/// By name.
Result<std::vector<fs::path>> list_policies(const fs::path& directory) {
    std::error_code error;
    std::vector<fs::path> files;
    fs::directory_iterator entry(directory, error);
    for (; !error && entry != fs::directory_iterator{}; entry.increment(error)) {
        if (!is_policy_name(entry->path().filename().native()))
            continue;
        if (files.size() == max_files)
            return fail(Errc::limit, "{}: more than {} files", one_line(directory.native()),
                        max_files);
        files.push_back(entry->path());
    }
    if (error)
        return unreadable(directory, error);
    std::ranges::sort(files, {}, &fs::path::native);
    return files;
}

} // namespace

PolicyFiles read_directory(const fs::path& directory) {
    std::error_code error;
    if (!fs::is_directory(directory, error))
        return {.unreadable = {
                    unreadable(directory,
                               error ? error : std::make_error_code(std::errc::not_a_directory))
                        .error()
                        .what}};

    PolicyFiles found{.is_there = false};
    const auto read = [&](const fs::path& path) {
        auto text = text_of(path, read_file(path, max_file_bytes));
        if (text)
            found.texts.push_back(std::move(*text));
        else
            found.unreadable.push_back(std::move(text.error().what));
    };
    if (const fs::path main = directory / "virtguard.toml"; !is_absent(main)) {
        found.is_there = true;
        read(main);
    }
    if (const fs::path more = directory / "conf.d"; !is_absent(more)) {
        found.is_there = true;
        const auto files = list_policies(more);
        if (files)
            std::ranges::for_each(*files, read);
        else
            found.unreadable.push_back(files.error().what);
    }
    return found;
}

PolicyFiles read_one_file(const fs::path& file) {
    auto text = text_of(file, read_stream(file, max_file_bytes));
    if (!text)
        return {.unreadable = {text.error().what}};
    return {.texts = {*std::move(text)}};
}

Loaded load(PolicyFiles files, const core::QuestionCheck& check) {
    Loaded loaded = load(std::span<const PolicyText>(files.texts), check);
    if (files.unreadable.empty())
        return loaded;
    std::vector<std::string> problems = std::move(files.unreadable);
    if (!loaded)
        problems.insert(problems.end(), loaded.error().begin(), loaded.error().end());
    return std::unexpected(std::move(problems));
}

Loaded load_directory(const fs::path& directory, const core::QuestionCheck& check) {
    return load(read_directory(directory), check);
}

Loaded load_file(const fs::path& file, const core::QuestionCheck& check) {
    return load(read_one_file(file), check);
}

} // namespace virtguard::policy
