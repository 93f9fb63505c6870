// SPDX-License-Identifier: Apache-2.0
// Apart from hook_conf.cpp, which the hook links: this needs fmt.
#include "base/file.hpp"
#include "wire/hook_conf.hpp"

namespace virtguard::wire {

Result<> write_hook_conf(const std::string& path, const HookConf& conf) {
    if (conf.timeout.count() < 1 || conf.timeout > max_hook_timeout)
        return fail(Errc::invalid, "hook.timeout: {} ms is not between 1 ms and 10 minutes",
                    conf.timeout.count());
    const std::string text = fmt::format("timeout-ms={}\nunavailable={}\n", conf.timeout.count(),
                                         conf.unavailable_denies ? "deny" : "allow");
    return replace_file(path, text, Durability::durable, 0644);
}

} // namespace virtguard::wire
