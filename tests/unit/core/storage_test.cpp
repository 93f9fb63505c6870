// SPDX-License-Identifier: Apache-2.0
//
// Ephemeral storage: file systems as places, and the growth that images still owe them.
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "core/admission.hpp"
#include "core/guard.hpp"
#include "guests.hpp"

using namespace virtguard;
using namespace virtguard::core;
using namespace std::chrono_literals;

namespace {

const Resource storage = Resource::storage();
using Lines = std::vector<std::string>;

/// Two file systems of 100 and 50 GiB, of which 40 and 0 are used.
FileSystems two_file_systems() {
    return {.read = {{0, {.path = "/a", .device = 7, .capacity = 100 * gib, .used = 40 * gib}},
                     {2, {.path = "/b", .device = 8, .capacity = 50 * gib, .used = 0}}},
            .unread = {}};
}

ImageName image_of(const std::string& path) {
    return {path, "qcow2"};
}

/// A guest without memory or vCPUs whose disks are the images of these paths.
Domain with_disks(std::string name, const std::vector<std::string>& paths) {
    Domain domain{.name = std::move(name)};
    for (const std::string& path : paths)
        domain.disks.push_back({.image = image_of(path)});
    return domain;
}

KnownImage known(std::uint64_t device, std::int64_t size, std::int64_t allocated = 0) {
    return {.image = Image{.device = device, .virtual_size = size, .allocated = allocated},
            .problem = ""};
}

Guard guard_with(const FileSystems& file_systems, const Images& images,
                 const Policy& policy = plain_policy()) {
    Guard guard(equal_nodes(2, 4, 16 * gib), policy);
    guard.set_file_systems(file_systems);
    guard.set_images(images);
    return guard;
}

std::string start(Guard& guard, const Domain& domain) {
    const Answer answer = guard.admit(domain, at(1s), IfKept::refuse).value();
    return answer.decision.admitted() ? "admitted" : refusal_line(domain.name, answer.decision);
}

Figures figures(const Guard& guard) {
    return guard.report().host;
}

} // namespace

TEST_CASE("a disk owes its virtual size without what its file has") {
    const auto [disk, image, growth] = GENERATE(table<Disk, Image, std::int64_t>({
        {{}, {.virtual_size = 10, .allocated = 0}, 10},
        {{}, {.virtual_size = 10, .allocated = 4}, 6},
        {{}, {.virtual_size = 10, .allocated = 12}, 0}, // the format's own tables
        {{.image = {}, .begins_anew = true}, {.virtual_size = 10, .allocated = 4}, 10},
    }));
    CHECK(growth_of(disk, image) == growth);
}

TEST_CASE("storage is what file systems have, less what is used and what disks still owe") {
    Guard guard = guard_with(two_file_systems(), {{image_of("/a/1"), known(7, 20 * gib, 5 * gib)},
                                                  {image_of("/b/1"), known(8, 10 * gib)}});
    CHECK(start(guard, with_disks("web", {"/a/1", "/b/1"})) == "admitted");
    CHECK(figures(guard).capacity.at(storage) == 150 * gib);
    CHECK(figures(guard).foreign.at(storage) == 40 * gib);
    CHECK(figures(guard).pending.at(storage) == 25 * gib);
    CHECK(figures(guard).free.at(storage) == 85 * gib);
    for (const NodeReport& node : guard.report().nodes)
        CHECK_FALSE(node.figures.capacity.contains(storage));
}

TEST_CASE("a disk needs room on its own file system") {
    Guard guard = guard_with(two_file_systems(), {{image_of("/a/1"), known(7, 60 * gib)},
                                                  {image_of("/a/2"), known(7, gib)},
                                                  {image_of("/b/1"), known(8, 50 * gib)},
                                                  {image_of("/b/2"), known(8, 51 * gib)}});
    CHECK(start(guard, with_disks("web", {"/a/1"})) == "admitted");
    const Answer refused = guard.check(with_disks("db", {"/a/2"}));
    REQUIRE(refused.decision.reasons.size() == 1);
    const Reason& reason = refused.decision.reasons.front();
    CHECK(reason.code == Code::insufficient_capacity);
    CHECK(reason.nodes.empty());
    CHECK(reason.text == "ephemeral-storage on /a: needs 1 GiB, 0 free of 100 GiB");
    CHECK(start(guard, with_disks("db", {"/b/2"})) ==
          "virtguard: refused db: ephemeral-storage on /b: needs 51 GiB, more than the 50 GiB that "
          "one guest can have");
    CHECK(start(guard, with_disks("db", {"/b/1"})) == "admitted");
}

TEST_CASE("a ratio stretches what is not used yet") {
    Policy policy = plain_policy();
    const auto [ratio, effective] = GENERATE(table<const char*, std::int64_t>({
        {"1", 100 * gib},
        {"2", 60 * gib * 2 + 40 * gib},
        {"0.5", 30 * gib + 40 * gib},
    }));
    set_ratio(policy, storage, ratio);
    FileSystems one = two_file_systems();
    one.read.erase(2);
    const Guard guard = guard_with(one, {}, policy);
    CHECK(figures(guard).effective.at(storage) == effective);
    CHECK(figures(guard).free.at(storage) == effective - 40 * gib);
}

TEST_CASE("images on other file systems, and devices, are not counted") {
    Guard guard = guard_with(two_file_systems(), {{image_of("/c/1"), known(9, 500 * gib)},
                                                  {image_of("/dev/vg/1"), known(0, 0)}});
    const Answer answer = guard.check(with_disks("web", {"/c/1", "/dev/vg/1"}));
    CHECK(answer.decision.reasons.empty());
    CHECK(answer.demand == Demand{});
}

TEST_CASE("without file systems to count, disks are nothing and unknown to nobody") {
    Policy policy = plain_policy();
    policy.storage.unknown_refuses = true;
    Guard guard(equal_nodes(2, 4, 16 * gib), policy);
    CHECK(guard.check(with_disks("web", {"/a/1"})).demand == Demand{});
    CHECK_FALSE(figures(guard).capacity.contains(storage));
}

TEST_CASE("an image of which nothing is known counts as the policy says") {
    struct Row {
        Images images;
        FileSystems file_systems;
        std::string text;
    };
    FileSystems unread = two_file_systems();
    unread.unread = {"/c"};
    const auto row = GENERATE_REF(values<Row>({
        {{}, two_file_systems(), "how much /a/1 may grow is not known: not read yet"},
        {{{image_of("/a/1"), {.image = std::nullopt, .problem = "it is no qcow2 image"}}},
         two_file_systems(),
         "how much /a/1 may grow is not known: it is no qcow2 image"},
        {{{image_of("/a/1"), known(9, gib)}},
         unread,
         "how much /a/1 may grow is not known: it may be on the file system of /c, which could not "
         "be read yet"},
    }));
    CAPTURE(row.text);
    Policy policy = plain_policy();
    const Domain domain = with_disks("web", {"/a/1"});
    SECTION("admit: nothing, with a note") {
        Guard guard = guard_with(row.file_systems, row.images, policy);
        const Answer answer = guard.check(domain);
        CHECK(answer.decision.reasons.empty());
        CHECK(answer.demand.notes == Lines{row.text});
    }
    SECTION("refuse: whatever hook.unavailable says, but in the mode of the resource") {
        policy.storage.unknown_refuses = true;
        policy.hook.unavailable_denies = false;
        Guard guard = guard_with(row.file_systems, row.images, policy);
        const Answer answer = guard.check(domain);
        REQUIRE(answer.decision.reasons.size() == 1);
        CHECK(answer.decision.reasons.front().code == Code::not_ready);
        CHECK(answer.decision.reasons.front().resource == storage);
        CHECK(refusal_line("web", answer.decision) == "virtguard: refused web: " + row.text);
        policy.resource_mode[storage] = Mode::observe;
        guard.apply(policy);
        CHECK(guard.check(domain).decision.would_refuse());
    }
}

TEST_CASE("what was known of an image counts while it cannot be read") {
    Policy policy = plain_policy();
    policy.storage.unknown_refuses = true;
    Guard guard = guard_with(two_file_systems(), {{image_of("/a/1"), known(7, 3 * gib)}}, policy);
    const Domain domain = with_disks("web", {"/a/1"});
    guard.set_images({{image_of("/a/1"), {.image = std::nullopt, .problem = "it hangs"}}});
    const Answer late = guard.check(domain);
    CHECK(late.decision.admitted());
    CHECK(late.demand.total().at(storage) == 3 * gib);
    CHECK(late.demand.notes == Lines{"/a/1 counts as it was when it was last read: it hangs"});
    guard.set_images({{image_of("/a/1"), known(7, 4 * gib)}});
    CHECK(guard.check(domain).demand.notes.empty());
}

TEST_CASE("what a guest has written is no longer owed, and is used") {
    FileSystems file_systems = two_file_systems();
    Guard guard = guard_with(file_systems, {{image_of("/a/1"), known(7, 20 * gib)}});
    Domain domain = with_disks("web", {"/a/1"});
    guard.running(domain, at(1s));
    CHECK(figures(guard).allocated.at(storage) == 20 * gib);
    const std::int64_t free = figures(guard).free.at(storage);
    guard.set_images({{image_of("/a/1"), known(7, 20 * gib, 8 * gib)}});
    file_systems.read[0].used += 8 * gib;
    guard.set_file_systems(file_systems);
    CHECK(figures(guard).allocated.at(storage) == 12 * gib);
    CHECK(figures(guard).free.at(storage) == free);
    CHECK(guard.ledger().held_by_scheduler().at("default-scheduler").at(storage) == 12 * gib);
    CHECK(broken_invariant(guard.ledger()) == "");
    guard.released(identity_of(domain), at(2s));
    CHECK(figures(guard).allocated.at(storage) == 0);
    CHECK(broken_invariant(guard.ledger()) == "");
}

TEST_CASE("a file system that comes, grows or goes changes what there is for guests that run") {
    Guard guard = guard_with({}, {{image_of("/a/1"), known(7, 70 * gib)}});
    guard.running(with_disks("web", {"/a/1"}), at(1s));
    CHECK_FALSE(figures(guard).allocated.contains(storage));
    guard.set_file_systems(two_file_systems());
    CHECK(figures(guard).allocated.at(storage) == 70 * gib);
    CHECK(guard.ledger().holdings().is_over());
    FileSystems grown = two_file_systems();
    grown.read[0].capacity = 200 * gib;
    guard.set_file_systems(grown);
    CHECK_FALSE(guard.ledger().holdings().is_over());
    CHECK(figures(guard).capacity.at(storage) == 250 * gib);
    CHECK(figures(guard).free.at(storage) == 140 * gib);
    CHECK(guard.check(with_disks("db", {"/a/1"})).decision.admitted());
    grown.read[0].capacity = 139 * gib;
    guard.set_file_systems(grown);
    CHECK_FALSE(guard.ledger().holdings().is_over());
    CHECK_FALSE(guard.check(with_disks("db", {"/a/1"})).decision.admitted());
    guard.set_file_systems({});
    CHECK_FALSE(figures(guard).capacity.contains(storage));
    CHECK(broken_invariant(guard.ledger()) == "");
}

TEST_CASE("a policy that is reloaded keeps what is known of images and file systems") {
    Guard guard = guard_with(two_file_systems(), {{image_of("/a/1"), known(7, 20 * gib)}});
    guard.running(with_disks("web", {"/a/1"}), at(1s));
    guard.apply(plain_policy());
    guard.apply(equal_nodes(1, 4, 16 * gib));
    CHECK(figures(guard).allocated.at(storage) == 20 * gib);
    CHECK(figures(guard).foreign.at(storage) == 40 * gib);
}

TEST_CASE("a guest that returns finds its storage, however full the file system is now") {
    Policy policy = plain_policy();
    policy.claim.return_hold = 1s;
    FileSystems file_systems = two_file_systems();
    Guard guard = guard_with(file_systems, {{image_of("/a/1"), known(7, 60 * gib)}}, policy);
    const Domain domain = with_disks("web", {"/a/1"});
    guard.running(domain, at(1s));
    guard.released(identity_of(domain), at(2s));
    file_systems.read[0].used = 100 * gib;
    guard.set_file_systems(file_systems);
    guard.set_images({{image_of("/a/1"), known(7, 70 * gib)}}); // its blocks were given back
    CHECK_FALSE(guard.check(with_disks("db", {"/a/1"})).decision.admitted());
    CHECK(guard.admit(domain, at(2100ms), IfKept::refuse).value().decision.admitted());
    CHECK(broken_invariant(guard.ledger()) == "");
}

TEST_CASE("a guest returns to another image than it left, as after a revert to a snapshot") {
    Policy policy = plain_policy();
    policy.claim.return_hold = 1s;
    policy.storage.unknown_refuses = true;
    FileSystems file_systems = two_file_systems();
    Guard guard = guard_with(file_systems,
                             {{image_of("/a/overlay.TRANSIENT"), known(7, 60 * gib, 50 * gib)},
                              {image_of("/b/1"), known(8, 60 * gib)}},
                             policy);
    const Domain domain = with_disks("web", {"/a/overlay.TRANSIENT"});
    guard.running(domain, at(1s));
    guard.released(identity_of(domain), at(2s));
    const std::string image = GENERATE("/b/1", "/a/unread");
    const Domain reverted = with_disks("web", {image});
    CHECK(guard.has_its_place(reverted, at(2100ms)));
    CHECK_FALSE(guard.has_its_place(reverted, at(3100ms)));
    CHECK(guard.admit(reverted, at(2100ms), IfKept::refuse).value().decision.reasons.empty());
    CHECK(broken_invariant(guard.ledger()) == "");
}

TEST_CASE("what was just read is not forgotten, however much is remembered") {
    Images others;
    for (std::size_t i = 0; i < Guard::max_images; ++i)
        others[image_of(fmt::format("/a/{}", i))] = known(7, gib);
    Guard guard = guard_with(two_file_systems(), others);
    guard.set_images({{image_of("/a/mine"), known(7, 9 * gib)}});
    CHECK(guard.check(with_disks("web", {"/a/mine"})).demand.total().at(storage) == 9 * gib);
    CHECK(guard.host().images.size() == 1);
}

TEST_CASE("quotas and reservations count storage") {
    Policy policy = plain_policy();
    policy.scheduler.accept["nova"] = {.match = "nova", .mode = {}, .quota = {}};
    policy.scheduler.accept["nova"].quota[storage] = {.amount = 10 * gib, .percent = {}};
    Guard guard = guard_with(
        two_file_systems(),
        {{image_of("/a/1"), known(7, 11 * gib)}, {image_of("/b/1"), known(8, 5 * gib)}}, policy);
    Domain domain = with_disks("web", {"/a/1"});
    domain.scheduler = "nova";
    CHECK(start(guard, domain) == "virtguard: refused web: ephemeral-storage: needs 11 GiB, 10 GiB "
                                  "left of the quota of 10 GiB of scheduler.accept.nova");
    CHECK(guard.check(domain).decision.is_short_of(storage)); // so images are read again
    guard.reserve("later",
                  {.pieces = {{storage, {0, 2}, /*whole=*/false, 106 * gib}}, .guest = {}});
    CHECK(start(guard, with_disks("db", {"/b/1"})) ==
          "virtguard: refused db: ephemeral-storage: needs 5 GiB, 4 GiB free of 150 GiB");
}

TEST_CASE("what a guest writes stays drawn from its reservation, and is not there twice") {
    FileSystems file_systems = two_file_systems();
    Guard guard = guard_with(file_systems, {{image_of("/b/1"), known(8, 30 * gib)}});
    guard.reserve("later", {.pieces = {{storage, {2}, /*whole=*/false, 40 * gib}}, .guest = "web"});
    Domain domain = with_disks("web", {"/b/1"});
    CHECK(start(guard, domain) == "admitted");
    const auto booked = [&] { return figures(guard).booked.at(storage); };
    const auto writes = [&](std::int64_t written) {
        guard.set_images({{image_of("/b/1"), known(8, 30 * gib, written)}});
        file_systems.read[2].used = written;
        guard.set_file_systems(file_systems);
    };
    CHECK(booked() == 10 * gib);
    const std::int64_t free = figures(guard).free.at(storage);
    writes(25 * gib);
    guard.running(domain, at(2s));
    CHECK(booked() == 10 * gib);
    CHECK(figures(guard).free.at(storage) == free);
    writes(30 * gib);
    writes(10 * gib); // it discards
    CHECK(booked() == 10 * gib);
    CHECK(figures(guard).free.at(storage) == free);
    writes(25 * gib);
    SECTION("until it ends") {
        guard.released(identity_of(domain), at(3s));
        CHECK(booked() == 40 * gib);
    }
    SECTION("with one more disk") {
        domain.disks.push_back({.image = image_of("/b/2")});
        guard.running(domain, at(3s));
        CHECK(booked() == 10 * gib);
    }
    SECTION("and is drawn from no other after its end") {
        guard.reserve("more", {.pieces = {{storage, {2}, /*whole=*/false, gib}}, .guest = "web"});
        guard.cancel({.owner = "", .name = "later"});
        CHECK(booked() == gib);
    }
    SECTION("on the file systems of one policy") {
        Policy policy = plain_policy();
        policy.storage.paths = {"/c"};
        guard.apply(policy);
        CHECK(booked() == 35 * gib);
    }
    CHECK(broken_invariant(guard.ledger()) == "");
}
