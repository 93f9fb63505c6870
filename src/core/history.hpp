// SPDX-License-Identifier: Apache-2.0
#pragma once
// The starts decided since the daemon began: the last of them, how many of each kind, and how long
// their answers took. Checks are no starts.

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/instant.hpp"
#include "base/uuid.hpp"
#include "core/admission.hpp"
#include "core/decision.hpp"
#include "core/domain.hpp"
#include "core/resource.hpp"

namespace virtguard::core {

/// would_refuse: admitted only because the mode is observe.
enum class Verdict { admit, refuse, would_refuse };
inline constexpr std::array all_verdicts{Verdict::admit, Verdict::refuse, Verdict::would_refuse};

/// "admit", "refuse", "would-refuse".
[[nodiscard]] std::string_view verdict_name(Verdict verdict);
[[nodiscard]] Verdict verdict_of(const Decision& decision);

/// Whether the reason is one of those that made this verdict: a refused start's reasons that only
/// mode observe records are none.
[[nodiscard]] bool is_decisive(const Reason& reason, Verdict verdict);

struct DecidedStart {
    WallTime time; ///< of the answer
    std::string name;
    std::optional<Uuid> uuid;
    std::string scheduler; ///< "" of a domain that could not be read
    Verdict verdict = Verdict::admit;
    std::vector<Reason> reasons;

    friend bool operator==(const DecidedStart&, const DecidedStart&) = default;
};

/// Decisive reasons by what they say; without a resource where they are about none.
struct ReasonKind {
    Verdict verdict = Verdict::refuse;
    Code code = Code::not_ready;
    std::optional<Resource> resource;

    friend auto operator<=>(const ReasonKind&, const ReasonKind&) = default;
};

/// How long answers took, in buckets: from the hook's exec to the answer, waits for a kept place
/// included.
struct Latencies {
    using Nanoseconds = std::chrono::nanoseconds;
    /// Upper ends, each in its bucket. An answer takes about a millisecond, most of it the hook's
    /// exec; hook.timeout is 2 s unless set.
    static constexpr std::array<Nanoseconds, 12> bounds{
        std::chrono::microseconds(500),  std::chrono::milliseconds(1),
        std::chrono::microseconds(2500), std::chrono::milliseconds(5),
        std::chrono::milliseconds(10),   std::chrono::milliseconds(25),
        std::chrono::milliseconds(50),   std::chrono::milliseconds(100),
        std::chrono::milliseconds(250),  std::chrono::milliseconds(500),
        std::chrono::seconds(1),         std::chrono::milliseconds(2500)};

    /// By bound, each bucket without those below; the last: longer than any bound.
    std::array<std::uint64_t, bounds.size() + 1> counts{};
    Nanoseconds sum{};

    void add(Nanoseconds latency);
    [[nodiscard]] std::uint64_t count() const;

    friend bool operator==(const Latencies&, const Latencies&) = default;
};

class History {
  public:
    /// What one screen or one D-Bus reply holds; some 100 KiB, and less than 2 MiB where each has
    /// as many reasons, of as much text, as are kept.
    static constexpr std::size_t max_starts = 256;
    static constexpr std::size_t max_name = 256;  ///< bytes, of a scheduler's name, too
    static constexpr std::size_t max_reasons = 8; ///< of one start: its first
    static constexpr std::size_t max_text = 500;  ///< bytes of a reason's text
    static constexpr int max_nodes = 64;          ///< of a reason; a domain may name thousands

    History() { starts_.reserve(max_starts); }

    /// A start was answered. What is longer than the limits is cut; that is returned, until the
    /// next start.
    const DecidedStart& note(const Domain& domain, const Answer& answer, WallTime time,
                             Span latency);

    /// The last starts, the latest first, so many at most.
    [[nodiscard]] std::vector<DecidedStart> recent(std::size_t max = max_starts) const;

    [[nodiscard]] std::uint64_t count(Verdict verdict) const;
    /// Starts by kinds of their decisive reasons: one with several kinds counts in each.
    [[nodiscard]] const std::map<ReasonKind, std::uint64_t>& reasons() const { return reasons_; }
    [[nodiscard]] const Latencies& latencies() const { return latencies_; }

  private:
    DecidedStart& next();

    std::vector<DecidedStart> starts_; ///< a ring once it is full
    std::size_t oldest_ = 0;
    std::array<std::uint64_t, all_verdicts.size()> counts_{};
    std::map<ReasonKind, std::uint64_t> reasons_; ///< at most verdicts × codes × resources
    Latencies latencies_;
};

} // namespace virtguard::core
