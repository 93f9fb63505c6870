// SPDX-License-Identifier: Apache-2.0
#pragma once
// Storage for tests that answers when it is told to: one file system per first part of a path
// ("/a"), of 100 GiB, with images of 10 GiB unless a test says otherwise.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "daemon/storage_watch.hpp"

namespace virtguard::daemon {

class SlowStorage {
  public:
    SlowStorage() = default;
    SlowStorage(const SlowStorage&) = delete;
    SlowStorage& operator=(const SlowStorage&) = delete;
    /// Whoever reads must be let go before its thread is waited for.
    ~SlowStorage() { release(); }

    void hang(const std::string& path) {
        const std::lock_guard lock(mutex_);
        hanging_.insert(path);
    }
    void release() {
        const std::lock_guard lock(mutex_);
        hanging_.clear();
        released_.notify_all();
    }
    void set_image(const std::string& path, Result<core::Image> image) {
        const std::lock_guard lock(mutex_);
        images_[path] = std::move(image);
    }
    void set_file_system(const std::string& path, Result<core::FileSystem> file_system) {
        const std::lock_guard lock(mutex_);
        file_systems_[path] = std::move(file_system);
    }
    /// Each image takes so long from now on.
    void dawdle(std::chrono::milliseconds time) {
        const std::lock_guard lock(mutex_);
        time_of_each_ = time;
    }
    /// How many had to wait.
    [[nodiscard]] int held() {
        const std::lock_guard lock(mutex_);
        return held_;
    }
    [[nodiscard]] std::size_t images_read() {
        const std::lock_guard lock(mutex_);
        return images_read_;
    }

    [[nodiscard]] StorageReader reader() {
        return {.image = [this](const core::ImageName& name) { return image(name.path); },
                .file_system = [this](const std::string& path) { return file_system(path); },
                .mounts = [this] { return mounts; }};
    }

    std::vector<std::string> mounts; ///< of the main thread alone

    static constexpr std::int64_t gib = std::int64_t{1} << 30;
    /// "/b" and all below it is on device 2.
    static std::uint64_t device_of(const std::string& path) {
        return static_cast<std::uint64_t>(path[1] - 'a') + 1;
    }

  private:
    void wait(const std::string& path, std::unique_lock<std::mutex>& lock) {
        held_ += hanging_.contains(path) ? 1 : 0;
        released_.wait(lock, [&] { return !hanging_.contains(path); });
    }
    Result<core::Image> image(const std::string& path) {
        std::unique_lock lock(mutex_);
        wait(path, lock);
        released_.wait_for(lock, time_of_each_, [] { return false; });
        ++images_read_;
        const auto set = images_.find(path);
        if (set != images_.end())
            return set->second;
        return core::Image{.device = device_of(path), .virtual_size = 10 * gib, .allocated = 0};
    }
    Result<core::FileSystem> file_system(const std::string& path) {
        std::unique_lock lock(mutex_);
        wait(path, lock);
        const auto set = file_systems_.find(path);
        if (set != file_systems_.end())
            return set->second;
        return core::FileSystem{
            .path = path, .device = device_of(path), .capacity = 100 * gib, .used = 0};
    }

    std::mutex mutex_;
    std::condition_variable released_;
    std::set<std::string> hanging_;
    int held_ = 0;
    std::chrono::milliseconds time_of_each_{0};
    std::map<std::string, Result<core::Image>> images_;
    std::map<std::string, Result<core::FileSystem>> file_systems_;
    std::size_t images_read_ = 0;
};

} // namespace virtguard::daemon
