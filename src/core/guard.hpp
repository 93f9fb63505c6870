// SPDX-License-Identifier: Apache-2.0
#pragma once
// All state of the daemon, and the only thing that changes it. No I/O, no clock: what happened and
// when come as arguments, so that the same events always give the same answers.

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.hpp"
#include "base/instant.hpp"
#include "base/uuid.hpp"
#include "core/advice.hpp"
#include "core/decision.hpp"
#include "core/domain.hpp"
#include "core/foreign.hpp"
#include "core/host.hpp"
#include "core/ledger.hpp"
#include "core/policy.hpp"
#include "core/report.hpp"
#include "core/residency.hpp"
#include "core/topology.hpp"

namespace virtguard::core {

/// What libvirt was seen to run. A domain whose XML could not be read is named, so that it is not
/// taken for gone.
struct Look {
    Instant began;        ///< before the first question was put to libvirt
    bool complete = true; ///< every active domain is in one of the two lists
    std::vector<Domain> active;
    std::vector<std::string> unreadable; ///< identities of active domains that could not be read
};

/// What to do with a start that fits only in a place kept for a returning guest.
enum class IfKept { wait, refuse };

class Guard {
  public:
    /// A look older than this says nothing worth knowing: what left since then may be forgotten.
    static constexpr std::chrono::minutes max_look_age{10};
    /// While libvirt answers, complete looks come as often as this. What is longer between two of
    /// them is time in which it did not, and counts for no lease.
    static constexpr std::chrono::minutes look_interval{1};

    Guard(Topology topology, Policy policy);

    [[nodiscard]] const Topology& topology() const { return topology_; }
    [[nodiscard]] const Policy& policy() const { return policy_; }
    /// The policy's and the reservations'.
    [[nodiscard]] const Questions& questions() const { return questions_; }
    /// How many guests were not asked yet all that the policy asks.
    [[nodiscard]] std::size_t unasked_guests() const { return unasked_.size(); }
    [[nodiscard]] const Host& host() const { return host_; }
    [[nodiscard]] const Ledger& ledger() const { return ledger_; }
    [[nodiscard]] Report report() const { return make_report(host_, ledger_.holdings()); }

    /// What a start would be answered now, with places that are kept for returning guests counted
    /// as free. Changes nothing.
    [[nodiscard]] Answer check(const Domain& domain);

    /// While it lives, many guests are taken up at the cost of one: see Ledger::Batch.
    [[nodiscard]] Ledger::Batch batch() { return Ledger::Batch(ledger_); }
    /// Takes up a guest as it is, in place of the one of that identity: what an earlier daemon
    /// knew. Its owner and demand are worked out anew.
    void put(Guest guest) { put(std::move(guest), std::nullopt); }
    /// Identities of guests that came, went or changed since this was last asked, or whose images
    /// did more than grow.
    [[nodiscard]] std::set<std::string> take_changed() { return ledger_.take_changed(); }

    /// What of a start would fit now, by resource.
    [[nodiscard]] std::vector<Fit> advise(const Domain& domain);

    /// Decides a start and, when it is admitted, holds its place: one step, so that of starts that
    /// race for one place exactly one gets it. `when` is the exec of the hook that asks. A second
    /// start of the same identity replaces the first's claim, or, refused, leaves it. Nothing is
    /// held for a start that has ended already: a younger message said so.
    /// A guest that returns to the place kept for it, or whose end we were not told of, is admitted
    /// whatever else has changed, and whatever its disks are by now. Nothing (only with
    /// IfKept::wait): the start would fit only in a place that is still kept; ask again at
    /// next_return_end().
    [[nodiscard]] std::optional<Answer> admit(const Domain& domain, Instant when, IfKept if_kept);

    /// Whether a start of that identity would return to a place that is kept for it, or that it
    /// never left. How much it needs is not looked at.
    [[nodiscard]] bool keeps_place_of(const std::string& identity, Instant when) const;
    /// And it needs no more than that: admit() will let it in.
    [[nodiscard]] bool has_its_place(const Domain& domain, Instant when) const;

    /// Ends what is kept for guests that did not return in time.
    void expire(Instant now);
    /// When the next place stops being kept; nothing when none is.
    [[nodiscard]] std::optional<Instant> next_return_end() const;

    /// Holds the place of a start that went ahead without our answer (its hook gave up waiting).
    void claim(const Domain& domain, Instant when);

    /// The start of a known guest succeeded; nothing where it is not known (a look will find it).
    void started(const std::string& identity, Instant when);

    /// A guest runs: its start succeeded, or libvirt found it running. Never refused.
    void running(const Domain& domain, Instant when);

    /// A guest, or the claim of a start, is gone. Ignored when older than what is known of it. The
    /// place of a guest that ran is kept for its return for claim.return: snapshot revert and the
    /// like stop a guest and start it again at once, and refusing that would turn it off.
    void released(const std::string& identity, Instant when);

    /// Brings the ledger in line with what libvirt runs, as far as the look is not older than what
    /// is known. Ends claims whose lease ran out.
    void reconcile(const Look& look);

    /// One domain looked at: running as given, or (nothing) not active.
    void reconcile(const std::string& identity, const std::optional<Domain>& active, Instant began);

    /// What running guests were seen to occupy, by identity, in a look that began at `when`: what
    /// is there stays there. Ignored for a guest that is not running or has changed since then.
    /// What is seen at one time may be told in parts.
    void set_residency(std::map<std::string, Residency> guests, Instant when);
    /// What all guests that could be read were seen to occupy, and what of the host's ordinary
    /// memory was not to be had at that time (bytes).
    void set_memory_use(const std::map<std::string, Residency>& guests, std::int64_t in_use);
    /// Bytes of ordinary memory that no guest holds and the policy does not reserve, and that are
    /// not to be had; nothing before that was first told.
    [[nodiscard]] std::optional<std::int64_t> foreign_memory() const {
        return foreign_memory_.beyond_reserve(host_);
    }

    /// What is known now of the file systems that the policy names.
    void set_file_systems(FileSystems file_systems);
    /// What is known now of images. Of those that could not be read what was known before stays,
    /// as does all of those that are not named. Of more than max_images those are forgotten that
    /// are not named and no guest has.
    void set_images(const Images& images);
    static constexpr std::size_t max_images = 65536; ///< some 16 MiB

    void apply(Policy policy);
    void apply(Topology topology);

    /// The kernel's counters of hugepages, just read. What the ledger does not explain of them is
    /// foreign until they are read again: counters from before a guest came or went would tell
    /// nothing true together with it. Right after the residency of all guests was told
    /// (Seen::now) it is exact.
    void set_page_use(const std::vector<PageUse>& use,
                      ForeignPages::Seen seen = ForeignPages::Seen::before);

    /// What becomes of space for guests to come that there is too little of.
    enum class IfShort { refuse, book };
    /// Books for a scheduler, in place of what it booked under that name, and decided without that,
    /// which stays when this is refused. Guests that are there draw on it at once where it lists
    /// them or their start is not older. What guests drew from the one that it replaces, and
    /// cannot from it, they may draw from others: nothing of that is spent.
    /// Error: limit.
    Result<Decision> reserve(const ReservationId& id, Booking booking, IfShort if_short);
    /// Takes up what was booked before, in place of all.
    void reserve(const std::map<ReservationId, Booking>& bookings);
    /// Ends a booking; nothing where there is none. What guests drew from it is theirs.
    void cancel(const ReservationId& id);
    /// simulate's reserve: space for a guest to come, however little is free.
    void reserve(const std::string& name, Reservation reservation);

    /// simulate's start: decided like any, and when admitted running at once.
    Answer start_at_once(const Domain& domain);

  private:
    void recompute();
    void collect_questions();
    void account_foreign();
    void forget_images(const Images& but);
    void note_asked(const std::string& identity, const Domain& domain);
    [[nodiscard]] bool is_older(const std::string& identity, Instant when) const;
    [[nodiscard]] bool has_its_place(const Domain& domain, const Demand& demand,
                                     Instant when) const;
    [[nodiscard]] Answer answer(const Domain& domain, Instant claimed, bool with_returning);
    [[nodiscard]] bool says_more(const Guest& known, const Domain& domain) const;
    void forget(const std::string& identity, Instant when);
    void note_departure(const std::string& identity, Instant when);
    /// held: the domain's demand where it has just been worked out.
    void record(const Domain& domain, GuestState state, Instant when,
                std::optional<Demand> held = {});
    void put(Guest guest, std::optional<Demand> held);

    Topology topology_;
    Policy policy_;
    Questions policy_questions_;
    Questions questions_;
    std::set<std::string> unasked_;
    Host host_;
    Ledger ledger_;
    ForeignPages foreign_pages_;
    ForeignMemory foreign_memory_;
    std::vector<Piece> foreign_hugepages_; ///< by the counters last read
    std::optional<Instant> last_look_;     ///< the beginning of the last complete look
    std::unordered_map<std::string, Instant>
        departed_;                        ///< when guests left; for messages that come late
    std::size_t tidy_departed_at_ = 1024; ///< the size at which old ones are dropped
};

} // namespace virtguard::core
