// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who holds what.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/checked.hpp"
#include "base/instant.hpp"
#include "core/demand.hpp"
#include "core/domain.hpp"
#include "core/occupancy.hpp"
#include "core/reservation.hpp"
#include "core/residency.hpp"
#include "core/resource.hpp"

namespace virtguard::core {

/// What pieces of equal places and wholeness hold together, by what they are held for. A sum over
/// absurd guests, let in by mode observe, need not fit into 64 bits.
struct Share {
    Int128 allocated = 0; ///< running guests
    Int128 pending = 0;   ///< starts in flight
    Int128 booked = 0;    ///< reservations, as far as no guest has taken them
    Int128 foreign = 0;   ///< what is no libvirt guest
    Int128 untouched = 0; ///< of allocated, hugepages that guests were seen not to occupy

    using Column = Int128 Share::*;

    [[nodiscard]] Int128 sum() const { return allocated + pending + booked + foreign; }

    friend bool operator==(const Share&, const Share&) = default;
};

struct PieceClass {
    IdSet places;
    bool whole = false;

    friend bool operator==(const PieceClass&, const PieceClass&) = default;
    friend auto operator<=>(const PieceClass&, const PieceClass&) = default;
};

struct PieceClassHash {
    [[nodiscard]] std::size_t operator()(const PieceClass& piece_class) const noexcept {
        return piece_class.places.hash() * 2 + (piece_class.whole ? 1 : 0);
    }
};

/// All that is held, added up; what decisions are made on. Holds no class whose share is nothing.
using Classes = std::unordered_map<PieceClass, Share, PieceClassHash>;

class Holdings {
  public:
    explicit Holdings(const Host& host);

    /// Adds (or with sign -1 takes away) pieces to one column of their classes. What is untouched
    /// is held already, and only noted.
    void add(const std::vector<Piece>& pieces, Share::Column column, int sign = 1);
    /// The places of one pool of the host, which are the same, have more or less than they had.
    void resize(const Resource& resource, const Host& host);

    [[nodiscard]] const std::map<Resource, Classes>& by_resource() const { return classes_; }
    [[nodiscard]] const Classes& of(const Resource& resource) const;
    /// The same as a flow; nothing where the host has no such pool.
    [[nodiscard]] Occupancy* occupancy(const Resource& resource);
    [[nodiscard]] const Occupancy* occupancy(const Resource& resource) const;

    /// Some of what is held can lie nowhere. Without that no free is negative, on the host or a
    /// node.
    [[nodiscard]] bool is_over() const;

    /// The same is held.
    friend bool operator==(const Holdings& a, const Holdings& b) {
        return a.classes_ == b.classes_;
    }

  private:
    std::map<Resource, Classes> classes_;
    std::map<Resource, Occupancy> occupancies_; ///< one per pool of the host
};

/// What guests hold and what is booked, by scheduler and resource, wherever it lies.
using HeldByScheduler = std::map<std::string, std::map<Resource, Int128>>;

/// What tells one domain from another: its UUID, else its name.
[[nodiscard]] std::string identity_of(const Domain& domain);

enum class GuestState {
    pending, ///< a start in flight
    running,
    returning, ///< released a moment ago: its place is kept for it alone
};

[[nodiscard]] std::string_view state_name(GuestState state);

struct Guest {
    Domain domain;
    std::string scheduler{}; ///< the owner, the default scheduler where the domain names none
    GuestState state = GuestState::pending;
    Instant changed{}; ///< when what made it so happened: a hook's exec, a look's beginning
    Instant since{};   ///< when it came into that state, as far as is known
    /// When the hook of its start was exec'd, or it was first seen. A guest that returns to its
    /// place keeps it.
    Instant claimed{};
    /// How long libvirt, while it answered, has not listed the domain.
    Span absent{};
    Demand demand{};       ///< of the domain, with the policy and host of now
    Residency residency{}; ///< what it was seen to occupy, while it runs
    /// The demand's pieces with what is resident bound; nothing where no residency is known.
    std::optional<BoundPieces> bound{};
    /// What it drew from reservations that have ended: it draws that from no other, but from those
    /// that list its UUID. By key_of(), no two alike.
    std::vector<Piece> spent{};
    /// What its disks owed and, as it was written, owe no longer, since it may draw on
    /// reservations: it is used now, and drawn from them all the same. The ledger's; by key_of(),
    /// no two alike.
    std::vector<Piece> written{};
    IdSet draws_on{}; ///< numbers of the reservations it may draw on; the ledger's

    [[nodiscard]] const std::vector<Piece>& held() const {
        return bound ? bound->pieces : demand.pieces;
    }
    /// A start of it is its return: what is in flight is no guest yet.
    [[nodiscard]] bool keeps_claim() const { return state != GuestState::pending; }
    /// Works out `bound` for the host of now.
    void bind(const Host& host);
};

/// Whether a domain has all disks that it, or another, had before.
[[nodiscard]] bool has_disks_of(const Domain& domain, const Domain& before);

/// Whether each piece was there before: of the same resource and wholeness, no more of it, and on
/// no narrower set of places.
[[nodiscard]] bool is_covered(const std::vector<Piece>& pieces, std::vector<Piece> before);

/// Space taken before its guest arrives. Guests draw on what is reserved for them as much as they
/// can together: a piece on another of its resource that has a place in common.
struct Reservation {
    std::vector<Piece> pieces; ///< what was asked, on the host of now
    /// Of one without a booking: the name or UUID of the guest that takes from it.
    std::optional<std::string> guest{};
    std::optional<Booking> booking{}; ///< what its owner, a scheduler, asked
    std::string match_key{};          ///< of the booking's question
    int number = 0;                   ///< the ledger's: no two have the same

    /// What a scheduler asked, on a host.
    [[nodiscard]] static Reservation of(Booking booking, const Host& host, const Policy& policy);
    /// Works `pieces` out for the host of now.
    void place(const Host& host, const Policy& policy);
};
using Reservations = std::map<ReservationId, Reservation>;

/// Invariant: holdings() is the sum of what the guests hold, of what the reservations have left,
/// and of what is foreign.
class Ledger {
    /// Who may draw on a reservation.
    struct Claimant {
        const Domain* domain;
        const std::string* scheduler;
        const std::vector<Piece>* pieces;
        Instant claimed;
        const std::vector<Piece>* spent;
        const std::vector<Piece>* written;
    };
    using Booked = std::map<ReservationId, std::vector<Piece>>;
    using Amounts = std::map<Resource, std::map<PieceClass, Int128>>;
    /// What guests may draw together on the same reservations, by number, that have its resource.
    using Wanted = std::map<IdSet, Amounts>;

  public:
    explicit Ledger(const Host& host) : holdings_(host) {}

    /// By identity; in no order.
    using Guests = std::unordered_map<std::string, Guest>;
    [[nodiscard]] const Guests& guests() const { return guests_; }
    [[nodiscard]] const Guest* find(const std::string& identity) const;
    [[nodiscard]] const Holdings& holdings() const { return holdings_; }
    [[nodiscard]] Holdings& holdings() { return holdings_; }
    [[nodiscard]] const HeldByScheduler& held_by_scheduler() const { return held_by_scheduler_; }
    /// Those that stopped a moment ago.
    [[nodiscard]] const std::set<std::string>& returning() const { return returning_; }
    [[nodiscard]] const Reservations& reservations() const { return reservations_; }
    /// What a reservation has left; some of its amounts may be 0. Nothing where there is none.
    [[nodiscard]] const std::vector<Piece>& booked(const ReservationId& id) const;
    /// Identities of guests that came, went or changed since this was last asked. What is merely
    /// confirmed has not changed.
    [[nodiscard]] std::set<std::string> take_changed() { return std::exchange(changed_, {}); }
    /// What is kept of guests with these images has changed.
    void note_change_of(const std::set<ImageName>& images);

    /// Records a guest, in place of the one of that identity.
    void put(Guest guest);
    /// What is known of a guest is known to be true at a later time; nothing where there is none.
    void confirm(const std::string& identity, Instant when);
    /// The same, and its XML says this of what reservations ask.
    void confirm(const std::string& identity, Instant when, Facts facts);
    /// libvirt did not list a guest for so much longer; nothing where there is no such guest.
    void add_absence(const std::string& identity, Span span);
    /// Binds what guests, by identity, were seen at a time to occupy to where it lies; nothing for
    /// those that are not running or have changed since.
    void set_residency(std::map<std::string, Residency> seen, Instant when, const Host& host);
    /// Forgets a guest; nothing where there is none.
    void erase(const std::string& identity);
    /// Records a reservation, in place of the one of that name.
    void reserve(const ReservationId& id, Reservation reservation);
    /// Records many at once, in place of all.
    void reserve(Reservations reservations);
    /// Ends a reservation; nothing where there is none. What guests drew from it is theirs, and not
    /// drawn from another instead.
    void cancel(const ReservationId& id);
    /// Replaces what is foreign.
    void set_foreign(std::vector<Piece> pieces);
    /// Drops guests' answers to other questions than these of the same keys.
    void drop_outdated(const Questions& questions);
    /// Works all demands and owners out anew, after the host or the policy has changed.
    void recompute(const Host& host, const Policy& policy);
    /// Works out anew what guests with one of these images may grow.
    void recompute_storage(const std::set<ImageName>& images, const Host& host,
                           const Policy& policy);
    /// Forgets what guests have written: the places of storage are others.
    void forget_written();

    /// While it lives, what reservations have left is not worked out, but once at its end: for many
    /// changes of guests of which none asks for it.
    class Batch {
      public:
        explicit Batch(Ledger& ledger) : ledger_(ledger) { ++ledger_.batches_; }
        Batch(const Batch&) = delete;
        Batch& operator=(const Batch&) = delete;
        ~Batch();

      private:
        Ledger& ledger_;
    };

    /// While it lives, holdings() and held_by_scheduler() are what others would hold if a guest
    /// started (its hook exec'd at `claimed`): without what it holds itself, and without what it
    /// would take from reservations made for it; on request also without the places kept for
    /// returning guests.
    class Others {
      public:
        Others(Ledger& ledger, const Domain& domain, const std::string& scheduler,
               const Demand& demand, Instant claimed, bool with_returning);
        Others(const Others&) = delete;
        Others& operator=(const Others&) = delete;
        ~Others();

      private:
        void draw_anew(const Claimant& start);

        Ledger& ledger_;
        std::vector<const Guest*> gone_;
        Booked before_;  ///< of the reservations that others would draw on otherwise
        Booked instead_; ///< the same, then
    };

    /// While it lives, a reservation is there in place of the one of its name, and holdings() and
    /// held_by_scheduler() are without what it adds to all that is booked. Then the old one is
    /// back, or the new one is there as any, when it was kept.
    class Trial {
      public:
        Trial(Ledger& ledger, ReservationId id, Reservation reservation);
        Trial(const Trial&) = delete;
        Trial& operator=(const Trial&) = delete;
        ~Trial();

        /// What guests that are there do not draw on at once, or others draw less of than before.
        [[nodiscard]] const std::vector<Piece>& added() const { return added_; }
        void keep() { is_kept_ = true; }

      private:
        Ledger& ledger_;
        ReservationId id_;
        std::optional<Reservation> old_;
        std::vector<Piece> added_;
        bool is_kept_ = false;
    };

  private:
    void account(const Guest& guest, int sign);
    void count_for_scheduler(const std::string& scheduler, const std::vector<Piece>& pieces,
                             int sign);
    void account_booked(const ReservationId& id, const std::vector<Piece>& pieces, int sign);

    [[nodiscard]] static Claimant claimant(const Guest& guest);
    [[nodiscard]] bool may_draw(const Claimant& claimant, const ReservationId& id) const;
    /// The numbers of the reservations that it may draw on.
    [[nodiscard]] IdSet drawable(const Claimant& claimant) const;
    /// Those of the numbers whose reservations have some of a resource.
    [[nodiscard]] IdSet having(const IdSet& numbers, const Resource& resource) const;
    /// Adds (or with sign -1 takes away) what it wants of them.
    void want(const Claimant& claimant, const IdSet& draws_on, int sign);
    void want(const Guest& guest, int sign) { want(claimant(guest), guest.draws_on, sign); }
    /// Works draws_on out anew.
    void find_draws(Guest& guest);
    /// With all that guests may draw on in the place of these.
    [[nodiscard]] IdSet connected(IdSet numbers) const;
    /// By ranks of what it may be drawn from.
    using Wants = std::map<IdSet, std::vector<Piece>>;
    /// Of reservations that are connected(), ranked by number, and by nothing that may differ in
    /// another ledger of the same.
    [[nodiscard]] Wants wants_of(const std::map<int, int>& rank) const;
    /// What reservations that are connected() have left.
    [[nodiscard]] Booked unclaimed(const IdSet& numbers) const;
    /// Who may draw on these came, changed or went, or what they reserve did.
    void rebook(const IdSet& numbers);
    /// Takes up one that is not there.
    void add(const ReservationId& id, Reservation reservation);
    /// Forgets one, if it is there. The numbers of those that were connected() to it.
    IdSet remove(const ReservationId& id);
    /// What guests want together of the same reservations.
    struct Drawing {
        IdSet draws_on;
        Piece piece;  ///< as much of it as is drawn
        IdSet own;    ///< where it may be drawn from: the one that ends,
        IdSet others; ///< and others
    };
    [[nodiscard]] std::vector<Drawing> drawings(int number, const IdSet& numbers,
                                                Occupancy& taken) const;
    /// What guests draw from the reservation of a number, which is connected() to these.
    [[nodiscard]] Wanted spent_on(int number, const IdSet& numbers) const;
    void note_spent(int number, Wanted spent);
    /// The reservation of a number will be drawn on no more.
    void want_no_more(int number);

    Guests guests_;
    Reservations reservations_;
    std::map<int, ReservationId> by_number_;
    std::map<Resource, IdSet> having_;   ///< numbers of those that have some
    std::map<std::string, int> matches_; ///< how many have each match_key
    Booked booked_;                      ///< what each reservation has left
    Wanted wanted_;                      ///< by all guests that may draw on any; nothing that is 0
    int batches_ = 0;
    IdSet unbooked_; ///< reservations to rebook at the batch's end
    std::vector<Piece> foreign_;
    std::set<std::string> returning_;
    std::set<std::string> changed_;
    Holdings holdings_;
    HeldByScheduler held_by_scheduler_; ///< no scheduler that holds nothing
};

} // namespace virtguard::core
