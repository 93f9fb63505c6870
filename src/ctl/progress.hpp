// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a person sees who waits for longer than a second.

#include <string>
#include <thread>

namespace virtguard::ctl {

/// From a second on there is a line on stderr, where that is a terminal, that says what is waited
/// for. It is gone when this is. Of several at a time only the first is shown.
class Progress {
  public:
    explicit Progress(std::string what);
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress();

  private:
    std::jthread thread_; ///< none where nobody would see it
};

} // namespace virtguard::ctl
