#include "recorder/blame.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/collective.h"

namespace unisono::recorder {
namespace {

bool has_failed(const RankRecord& record) {
  return !record.calls.empty() && record.calls.back().state == EntryState::kFailed;
}

// The call in flight that began first, or the first of those that the last failure ended.
const RecordedCall* call_that_holds_up(const RankRecord& record) {
  const auto running =
      std::find_if(record.calls.begin(), record.calls.end(),
                   [](const RecordedCall& call) { return call.state == EntryState::kRunning; });
  if (running != record.calls.end()) return &*running;
  const RecordedCall* first = nullptr;
  for (auto call = record.calls.rbegin(); call != record.calls.rend(); ++call) {
    if (call->state != EntryState::kFailed) break;
    first = &*call;
  }
  return first;
}

// Who is in a communicator, as far as records say.
struct Group {
  int size = 0;
  std::map<Rank, Rank> world_ranks;     // by member
  std::map<Rank, std::uint64_t> begun;  // by member
  bool is_numbered_as_world = true;

  // -1: no record tells.
  Rank world_rank(Rank member) const {
    const auto known = world_ranks.find(member);
    if (known != world_ranks.end()) return known->second;
    return is_numbered_as_world ? member : -1;
  }
};

class Court {
 public:
  explicit Court(std::span<const Witness> witnesses) : witnesses_(witnesses) {
    for (const Witness& witness : witnesses_) {
      by_rank_[witness.record.rank] = &witness;
      for (const RecordedCommunicator& each : witness.record.communicators) {
        Group& group = groups_[each.id];
        group.size = std::max(group.size, each.size);
        group.world_ranks[each.member] = witness.record.rank;
        group.begun[each.member] = std::max(group.begun[each.member], each.begun);
        if (each.member != witness.record.rank || each.size != witness.record.world_size) {
          group.is_numbered_as_world = false;
        }
      }
    }
  }

  Verdict judge() {
    for (const Witness& witness : witnesses_) verdict_.standings.push_back(standing_of(witness));
    std::sort(verdict_.standings.begin(), verdict_.standings.end(),
              [](const Standing& a, const Standing& b) { return a.rank < b.rank; });
    find_first();
    if (verdict_.first.empty()) {
      judge_without_waits();
    } else if (verdict_.kind != Verdict::Kind::kCycle) {
      verdict_.kind = kind_of(verdict_.first.front());
    }
    return std::move(verdict_);
  }

 private:
  const Witness* find_witness(Rank rank) const {
    const auto found = by_rank_.find(rank);
    return found == by_rank_.end() ? nullptr : found->second;
  }
  // Once they are in order.
  const Standing* find(Rank rank) const {
    const auto found =
        std::lower_bound(verdict_.standings.begin(), verdict_.standings.end(), rank,
                         [](const Standing& each, Rank wanted) { return each.rank < wanted; });
    return found == verdict_.standings.end() || found->rank != rank ? nullptr : &*found;
  }
  bool stands_still(Rank rank) const {
    const Witness* const witness = find_witness(rank);
    return witness != nullptr && witness->stands_still();
  }
  // It makes no call any more.
  bool is_over(Rank rank) const {
    const Witness* const witness = find_witness(rank);
    if (witness == nullptr) return false;
    return witness->life == Life::kGone || witness->record.closed_ns != 0 ||
           has_failed(witness->record);
  }

  Verdict::Kind kind_of(Rank first) const {
    const bool is_told = std::any_of(
        verdict_.standings.begin(), verdict_.standings.end(), [&](const Standing& each) {
          return each.is_told &&
                 std::binary_search(each.waits_for.begin(), each.waits_for.end(), first);
        });
    return is_told || is_over(first) ? Verdict::Kind::kStopped : Verdict::Kind::kMissing;
  }

  Standing standing_of(const Witness& witness) const {
    Standing standing{.rank = witness.record.rank};
    standing.call = call_that_holds_up(witness.record);
    standing.is_held_up = standing.call != nullptr;
    if (standing.is_held_up) {
      find_waits(witness, &standing);
    } else if (!witness.record.calls.empty()) {
      standing.call = &witness.record.calls.back();
    }
    return standing;
  }

  void find_waits(const Witness& witness, Standing* standing) const {
    const RecordedCall& call = *standing->call;
    const auto found = groups_.find(call.communicator);
    const RecordedCommunicator* const own = witness.record.find(call.communicator);
    if (found == groups_.end() || own == nullptr) return;
    const Group& group = found->second;
    // What the job has found out is better evidence than what can be worked out afterwards.
    if (call.state == EntryState::kFailed && call.failed_rank >= 0) {
      standing->is_told = true;
      if (call.failed_rank != own->member) add(group, call.failed_rank, standing);
    } else if (call.is_message()) {
      if (call.peer >= 0) add(group, call.peer, standing);
    } else if (call.is_numbered) {
      add_missing(group, call, own->member, standing);
    }
    std::sort(standing->waits_for.begin(), standing->waits_for.end());
  }

  static void add(const Group& group, Rank member, Standing* standing) {
    const Rank rank = group.world_rank(member);
    if (rank < 0) {
      ++standing->unknown;
    } else {
      standing->waits_for.push_back(rank);
    }
  }

  static bool is_missing(const Group& group, Rank member, const RecordedCall& call) {
    const auto begun = group.begun.find(member);
    return begun == group.begun.end() || begun->second <= call.sequence();
  }

  // Members that have not arrived; where all have, those that stand still in the call.
  void add_missing(const Group& group, const RecordedCall& call, Rank self,
                   Standing* standing) const {
    const CollectiveFacts& facts = facts_of(static_cast<Collective>(call.record.collective));
    const Rank root = call.record.root;
    if (facts.flow == Flow::kRootToAll && root != self && is_missing(group, root, call)) {
      return add(group, root, standing);
    }
    const int members = facts.is_prefix() ? self : group.size;
    for (Rank member = 0; member < members; ++member) {
      if (member == self || !is_missing(group, member, call)) continue;
      const bool is_known = find_witness(group.world_rank(member)) != nullptr;
      if (is_known) add(group, member, standing);
      if (!is_known) ++standing->unknown;
    }
    if (!standing->waits_for.empty() || standing->unknown > 0) return;
    for (Rank member = 0; member < members; ++member) {
      if (member != self && stands_still(group.world_rank(member))) add(group, member, standing);
    }
  }

  // Those who are waited for and wait for nobody that could still come.
  void find_first() {
    std::map<Rank, int> waited_for, told;
    for (const Standing& each : verdict_.standings) {
      for (const Rank rank : each.waits_for) {
        ++waited_for[rank];
        if (each.is_told) ++told[rank];
      }
    }
    for (const auto& [rank, waiting] : waited_for) {
      const Standing* const standing = find(rank);
      const bool waits = standing != nullptr && !standing->waits_for.empty();
      if (!waits || stands_still(rank) || told.contains(rank)) verdict_.first.push_back(rank);
    }
    const auto weight = [&](Rank rank) {
      return std::tuple(-told[rank], stands_still(rank) ? 0 : 1, is_over(rank) ? 0 : 1,
                        -waited_for[rank], last_sign_of(rank), rank);
    };
    std::sort(verdict_.first.begin(), verdict_.first.end(),
              [&](Rank a, Rank b) { return weight(a) < weight(b); });
    if (verdict_.first.empty() && !waited_for.empty()) find_cycle(waited_for.begin()->first);
  }

  std::int64_t last_sign_of(Rank rank) const {
    const Standing* const standing = find(rank);
    return standing == nullptr || standing->call == nullptr ? 0 : standing->call->since_ns();
  }

  // Everybody who is waited for waits as well, so that the way comes back somewhere.
  void find_cycle(Rank from) {
    std::vector<Rank> way;
    Rank rank = from;
    while (std::find(way.begin(), way.end(), rank) == way.end()) {
      way.push_back(rank);
      rank = find(rank)->waits_for.front();
    }
    way.erase(way.begin(), std::find(way.begin(), way.end(), rank));
    verdict_.first = std::move(way);
    verdict_.kind = Verdict::Kind::kCycle;
  }

  void judge_without_waits() {
    std::vector<Rank> over;
    bool all_left = true, some_run = false;
    for (const Standing& each : verdict_.standings) {
      const Witness& witness = *find_witness(each.rank);
      if (witness.stands_still() || has_failed(witness.record)) over.push_back(each.rank);
      all_left = all_left && witness.record.closed_ns != 0;
      some_run = some_run || each.is_held_up;
    }
    std::stable_sort(over.begin(), over.end(),
                     [&](Rank a, Rank b) { return last_sign_of(a) < last_sign_of(b); });
    verdict_.first = std::move(over);
    verdict_.kind = !verdict_.first.empty() ? kind_of(verdict_.first.front())
                    : all_left              ? Verdict::Kind::kFinished
                    : some_run              ? Verdict::Kind::kBusy
                                            : Verdict::Kind::kIdle;
  }

  const std::span<const Witness> witnesses_;
  std::map<Rank, const Witness*> by_rank_;
  std::map<std::uint32_t, Group> groups_;
  Verdict verdict_;
};

}  // namespace

bool Witness::was_ended() const {
  return life == Life::kGone && record.closed_ns == 0 && !has_failed(record);
}

Verdict blame(std::span<const Witness> witnesses) { return Court(witnesses).judge(); }

}  // namespace unisono::recorder
