// SPDX-License-Identifier: Apache-2.0
#include "core/residency.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <utility>

namespace virtguard::core {

namespace {

/// Which piece what lies on each node belongs to: a flow from pieces to nodes, as large as can be.
/// A guest has few pieces.
class Binding {
  public:
    /// resident: what there is to explain, by node; pieces: of one resource.
    Binding(std::vector<Piece> pieces, std::map<int, std::int64_t> resident)
        : pieces_(std::move(pieces)), unexplained_(std::move(resident)), lies_(pieces_.size()) {
        std::ranges::stable_sort(pieces_, {}, [](const Piece& piece) {
            return std::pair(!piece.whole, piece.places.count());
        });
        for (std::size_t piece = 0; piece < pieces_.size(); ++piece)
            while (step(piece)) {
            }
        for (std::size_t piece = 0; piece < pieces_.size(); ++piece)
            for (auto& [node, amount] : unexplained_)
                lay(piece, node, std::min(amount, pieces_[piece].amount));
    }

    void add_to(BoundPieces& result) && {
        for (std::size_t piece = 0; piece < pieces_.size(); ++piece) {
            for (const auto& [node, amount] : lies_[piece])
                if (amount > 0)
                    result.pieces.push_back(
                        {pieces_[piece].resource, IdSet{node}, pieces_[piece].whole, amount});
            if (pieces_[piece].amount == 0)
                continue;
            if (pieces_[piece].resource.kind == Resource::Kind::hugepages)
                result.untouched.push_back(pieces_[piece]);
            result.pieces.push_back(std::move(pieces_[piece]));
        }
    }

  private:
    /// How the search came to a node: with `piece`, from the node that piece can leave; nothing of
    /// the latter where it began.
    struct Trail {
        std::size_t piece = 0;
        std::optional<int> from;
    };

    void lay(std::size_t piece, int node, std::int64_t amount) {
        lies_[piece][node] += amount;
        pieces_[piece].amount -= amount;
        unexplained_[node] -= amount;
    }

    /// Binds some of a piece, if need be by giving it what another piece had and that one something
    /// else. False: no more of it can be bound where it may lie.
    bool step(std::size_t piece) {
        if (pieces_[piece].amount == 0)
            return false;
        std::map<int, Trail> trails;
        const auto found = search(piece, trails);
        if (!found)
            return false;
        std::int64_t amount = std::min(pieces_[piece].amount, unexplained_[*found]);
        for (const Trail* at = &trails[*found]; at->from; at = &trails[*at->from])
            amount = std::min(amount, lies_[at->piece][*at->from]);
        pieces_[piece].amount -= amount;
        unexplained_[*found] -= amount;
        for (std::optional<int> node = found; node; node = trails[*node].from) {
            const Trail& trail = trails[*node];
            lies_[trail.piece][*node] += amount;
            if (trail.from)
                lies_[trail.piece][*trail.from] -= amount;
        }
        return true;
    }

    /// The nearest node with something unexplained.
    std::optional<int> search(std::size_t piece, std::map<int, Trail>& trails) const {
        std::deque<int> queue;
        const auto reach = [&](std::size_t with, std::optional<int> from) {
            for (const auto& [node, amount] : unexplained_)
                if (pieces_[with].places.contains(node) &&
                    trails.try_emplace(node, Trail{with, from}).second)
                    queue.push_back(node);
        };
        for (reach(piece, std::nullopt); !queue.empty(); queue.pop_front()) {
            const int node = queue.front();
            if (unexplained_.at(node) > 0)
                return node;
            for (std::size_t other = 0; other < pieces_.size(); ++other)
                if (const auto part = lies_[other].find(node);
                    part != lies_[other].end() && part->second > 0)
                    reach(other, node);
        }
        return std::nullopt;
    }

    std::vector<Piece> pieces_; ///< amount: what is not bound
    std::map<int, std::int64_t> unexplained_;
    std::vector<std::map<int, std::int64_t>> lies_; ///< by piece: what is bound, by node
};

/// On nodes that the pool has: elsewhere (the node went, a GPU's memory) nothing can be counted.
std::map<int, std::int64_t> counted(const std::map<int, std::int64_t>& resident, const Pool& pool) {
    std::map<int, std::int64_t> result;
    for (const auto& [node, amount] : resident)
        if (amount > 0 && pool.places.contains(node))
            result[node] = amount;
    return result;
}

} // namespace

BoundPieces bind_resident(const std::vector<Piece>& pieces, const Residency& residency,
                          const Host& host) {
    BoundPieces result;
    std::map<Resource, std::vector<Piece>> to_bind;
    for (const Piece& piece : pieces)
        if (residency.contains(piece.resource) && host.pool(piece.resource) != nullptr)
            to_bind[piece.resource].push_back(piece);
        else
            result.pieces.push_back(piece);
    for (auto& [resource, of_resource] : to_bind)
        Binding(std::move(of_resource), counted(residency.at(resource), *host.pool(resource)))
            .add_to(result);
    merge_pieces(result.pieces);
    merge_pieces(result.untouched);
    return result;
}

} // namespace virtguard::core
