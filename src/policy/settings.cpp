// SPDX-License-Identifier: Apache-2.0
#include "policy/settings.hpp"

#include <map>
#include <string_view>
#include <utility>

#include "base/checked.hpp"
#include "base/ratio.hpp"
#include "base/text.hpp"
#include "core/host.hpp"
#include "policy/keys.hpp"
#include "policy/values.hpp"

namespace virtguard::policy {

namespace {

std::string word(bool value, std::string_view yes, std::string_view no) {
    return toml_string(value ? yes : no);
}
std::string truth(bool value) {
    return value ? "true" : "false";
}
std::string size(std::int64_t bytes) {
    return toml_string(format_iec(bytes));
}
std::string duration(std::chrono::milliseconds span) {
    return toml_string(format_duration(span));
}

/// Those that nothing sets, too, of all that takes one.
std::map<core::Resource, Ratio> ratios(const core::Policy& policy) {
    std::map<core::Resource, Ratio> all{{core::Resource::cpu(), {}},
                                        {core::Resource::memory(), {}}};
    if (!policy.storage.paths.empty())
        all.try_emplace(core::Resource::storage());
    for (const auto& [resource, custom] : policy.resources)
        all.try_emplace(resource);
    for (const auto& [resource, ratio] : policy.overcommit)
        all.insert_or_assign(resource, ratio);
    return all;
}

/// Where it is not named, what the nodes name, or the default.
std::int64_t reserved_memory(const core::ReservePolicy& reserve) {
    bool is_any_named = false;
    Int128 sum = 0;
    for (const auto& [node, of_node] : reserve.nodes) {
        is_any_named = is_any_named || of_node.memory;
        sum += of_node.memory.value_or(0);
    }
    return reserve.memory.value_or(is_any_named ? saturate(sum) : core::default_memory_reserve);
}

class Settings {
  public:
    explicit Settings(const core::Policy& policy) : policy_(policy) {}

    std::vector<core::Setting> list() && {
        add("mode",
            toml_string(policy_.maintenance ? "maintenance" : core::mode_name(policy_.mode)));
        for (const auto& [resource, ratio] : ratios(policy_))
            add(fmt::format("overcommit.{}", toml_key(resource.name())), ratio.text());
        for (const auto& [resource, mode] : policy_.resource_mode)
            add(fmt::format("resource-mode.{}", toml_key(resource.name())),
                toml_string(core::mode_name(mode)));
        add_memory();
        add_cpu();
        add("hook.timeout", duration(policy_.hook.timeout));
        add("hook.unavailable", word(policy_.hook.unavailable_denies, "deny", "allow"));
        add("claim.lease", duration(policy_.claim.lease));
        add("claim.return", duration(policy_.claim.return_hold));
        add_reserve();
        add_storage();
        add_scheduler();
        add_rules();
        add_resources();
        if (!policy_.metrics.textfile_folder.empty())
            add("metrics.textfile-folder", toml_string(policy_.metrics.textfile_folder));
        return std::move(list_);
    }

  private:
    void add(std::string key, std::string value) {
        // A value may come from its table, which says so by being there.
        auto origin = policy_.origins.find(key);
        if (origin == policy_.origins.end())
            origin = policy_.origins.find(key.substr(0, key.rfind('.')));
        list_.push_back({std::move(key), std::move(value),
                         origin == policy_.origins.end() ? "default" : origin->second});
    }

    void add_memory() {
        const core::MemoryPolicy& memory = policy_.memory;
        add("memory.count", word(memory.count_current, "current", "maximum"));
        add("memory.virtio-mem", word(memory.virtio_mem_requested, "requested", "size"));
        add("memory.file", word(memory.file_is_storage, "storage", "memory"));
        add("memory.foreign", word(memory.charge_foreign, "charge", "show"));
        if (memory.nodes)
            add("memory.nodes", toml_string(memory.nodes->text()));
        if (!memory.overhead)
            return add("memory.overhead", toml_string("none"));
        const core::Overhead& overhead = *memory.overhead;
        add("memory.overhead.base", size(overhead.base));
        add("memory.overhead.per-vcpu", size(overhead.per_vcpu));
        add("memory.overhead.per-iothread", size(overhead.per_iothread));
        add("memory.overhead.per-gib", size(overhead.per_gib));
        add("memory.overhead.video", truth(overhead.video));
        add("memory.overhead.per-vfio", size(overhead.per_vfio));
        add("memory.overhead.sev", size(overhead.sev));
        add("memory.overhead.tpm", size(overhead.tpm));
    }

    void add_cpu() {
        const core::CpuPolicy& cpu = policy_.cpu;
        add("cpu.count", word(cpu.count_cores, "cores", "threads"));
        add("cpu.pinning", word(cpu.pinning_exclusive, "exclusive", "shared"));
        add("cpu.vcpus", word(cpu.vcpus_maximum, "maximum", "current"));
        if (cpu.dedicated)
            add("cpu.dedicated", toml_string(cpu.dedicated->text()));
        if (cpu.shared)
            add("cpu.shared", toml_string(cpu.shared->text()));
    }

    void add_reserve() {
        const core::ReservePolicy& reserve = policy_.reserve;
        add("reserve.cpus", toml_string(reserve.cpus.text()));
        add("reserve.memory", size(reserved_memory(reserve)));
        for (const auto& [node, of_node] : reserve.nodes) {
            if (of_node.memory)
                add(fmt::format("reserve.node.{}.memory", node), size(*of_node.memory));
            for (const auto& [page_size, bytes] : of_node.hugepages)
                add(fmt::format("reserve.node.{}.hugepages.{}", node, format_iec(page_size)),
                    size(bytes));
        }
    }

    void add_storage() {
        const core::StoragePolicy& storage = policy_.storage;
        std::string paths;
        for (const std::string& path : storage.paths)
            paths += fmt::format("{}{}", paths.empty() ? "" : ", ", toml_string(path));
        add("storage.paths", fmt::format("[{}]", paths));
        add("storage.unknown", word(storage.unknown_refuses, "refuse", "admit"));
    }

    void add_scheduler() {
        const core::SchedulerPolicy& scheduler = policy_.scheduler;
        add("scheduler.default", toml_string(scheduler.default_name));
        add("scheduler.accept-default", truth(scheduler.accept_default));
        add("scheduler.accept-any", truth(scheduler.accept_any));
        for (const auto& [name, accepted] : scheduler.accept) {
            const std::string table = fmt::format("scheduler.accept.{}", toml_key(name));
            add(table + ".match", toml_string(accepted.match));
            if (accepted.mode)
                add(table + ".mode", toml_string(core::mode_name(*accepted.mode)));
            for (const auto& [resource, quota] : accepted.quota)
                add(fmt::format("{}.quota.{}", table, toml_key(resource.name())),
                    quota.percent         ? toml_string(quota.percent->text() + "%")
                    : resource.is_bytes() ? size(quota.amount)
                                          : fmt::format("{}", quota.amount));
        }
        for (const auto& [name, recogniser] : scheduler.recognise) {
            const std::string table = fmt::format("scheduler.recognise.{}.", toml_key(name));
            for (const auto& [prefix, uri] : recogniser.namespaces)
                add(fmt::format("{}namespaces.{}", table, toml_key(prefix)), toml_string(uri));
            add(table + "match", toml_string(recogniser.match));
        }
    }

    void add_rules() {
        for (const auto& [name, rule] : policy_.rules) {
            const std::string table = fmt::format("rule.{}.", toml_key(name));
            add(table + "priority", fmt::format("{}", rule.priority));
            for (const auto& [prefix, uri] : rule.namespaces)
                add(fmt::format("{}namespaces.{}", table, toml_key(prefix)), toml_string(uri));
            add(table + "match", toml_string(rule.match));
            if (rule.action)
                add(table + "action", toml_string(core::action_name(*rule.action)));
            if (!rule.message.empty())
                add(table + "message", toml_string(rule.message));
        }
    }

    void add_capacity(const std::string& key, const core::CustomCapacity& capacity) {
        if (capacity.file.empty())
            add(key, fmt::format("{}", capacity.amount));
        else
            add(key + ".file", toml_string(capacity.file));
    }

    void add_resources() {
        for (const auto& [resource, custom] : policy_.resources) {
            const std::string table = fmt::format("resource.{}.", toml_key(resource.name()));
            if (custom.host)
                add_capacity(table + "capacity", *custom.host);
            for (const auto& [node, capacity] : custom.nodes)
                add_capacity(fmt::format("{}capacity.node.{}", table, node), capacity);
            if (!custom.unit.empty())
                add(table + "unit", toml_string(custom.unit));
            for (const auto& [prefix, uri] : custom.namespaces)
                add(fmt::format("{}namespaces.{}", table, toml_key(prefix)), toml_string(uri));
            add(table + "demand", toml_string(custom.demand));
        }
    }

    const core::Policy& policy_;
    std::vector<core::Setting> list_;
};

} // namespace

std::vector<core::Setting> settings(const core::Policy& policy) {
    return Settings(policy).list();
}

} // namespace virtguard::policy
