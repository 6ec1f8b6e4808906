// The network that is down between hosts, of a case.
#include <algorithm>

#include "tests/sim/case_parts.h"

namespace unisono::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// After such a time without a network what is sent again still comes to ranks that leave, which
// wait for two seconds.
constexpr milliseconds kSoonBack{1500};

bool is_partition(const Fault& fault) { return fault.kind == Fault::Kind::kPartition; }

bool comes_again(const Case& c) {
  return std::count_if(c.faults.begin(), c.faults.end(), is_partition) > 1;
}

Fault between_any_hosts(Random& random, const Case& c) {
  const auto any_rank = [&] {
    return static_cast<Rank>(random.below(static_cast<std::uint64_t>(c.ranks)));
  };
  const Rank one = any_rank(), other = any_rank();
  return {
      .kind = Fault::Kind::kPartition, .rank = std::min(one, other), .peer = std::max(one, other)};
}

}  // namespace

// For good, perhaps with a death before or after; for less than would be missed, so that what is
// sent again once the network is back comes in time; or until it is missed by some.
void add_partition(Random& random, Case* c) {
  c->silence = milliseconds(3000);
  Fault fault = between_any_hosts(random, *c);
  fault.at = random.of_any_scale_up_to(milliseconds(60));
  if (random.one_in(4)) {
    fault.lasts = random.of_any_scale_up_to(kSoonBack);
  } else if (random.one_in(4)) {
    fault.lasts = c->silence - milliseconds(500) + random.up_to(milliseconds(2500));
  }
  // In between: beats come late, and who leaves may wait in vain. Drawn apart, so that the rest of
  // a seed's case is as it was without.
  Random apart(~c->seed);
  if (apart.one_in(8)) fault.lasts = kSoonBack + apart.up_to(milliseconds(1000));
  fault.is_one_way = apart.one_in(10);
  c->faults.push_back(fault);
  if (!fault.is_for_ever() || !random.one_in(4)) return;
  const auto dead = static_cast<Rank>(random.below(static_cast<std::uint64_t>(c->ranks)));
  c->faults.push_back(
      {.kind = Fault::Kind::kCrash, .rank = dead, .at = random.of_any_scale_up_to(seconds(8))});
}

// While the first stands, just when it is missed and most agree, or when it is over. Drawn apart,
// so that the other seeds' cases are as they were without.
void add_second_partition(Case* c) {
  const auto first = std::find_if(c->faults.begin(), c->faults.end(), is_partition);
  if (first == c->faults.end()) return;
  Random random((c->seed + 1) * 0xd1342543de82ef95ull);
  if (!random.one_in(4)) return;
  // That one may be over by then.
  if (random.one_in(3)) first->lasts = c->silence + random.of_any_scale_up_to(milliseconds(300));
  Fault second = between_any_hosts(random, *c);
  const Duration missed_at = first->at + c->silence;
  second.at = random.one_in(3) ? first->at + random.up_to(c->silence)
                               : missed_at + random.of_any_scale_up_to(milliseconds(600));
  if (random.one_in(3)) second.lasts = random.of_any_scale_up_to(2 * c->silence);
  // Where links are told at once to be down, that is so both ways.
  const bool is_told_late = c->network.unacknowledged == rendezvous::unacknowledged_max(c->silence);
  second.is_one_way = random.one_in(10) && is_told_late;
  c->faults.push_back(second);
}

bool may_be_missed(const Case& c, const Fault& partition) {
  if (partition.is_for_ever()) return true;
  // One after the other they may be, and between them hear what is sent again of one alone.
  return c.silence.count() > 0 && (partition.lasts >= c.silence * 2 / 3 || comes_again(c));
}

bool outlasts_leaving(const Case& c) {
  return comes_again(c) || std::any_of(c.faults.begin(), c.faults.end(), [](const Fault& fault) {
           return is_partition(fault) && fault.lasts > kSoonBack;
         });
}

std::vector<const Fault*> lasting_partitions(const Case& c) {
  std::vector<const Fault*> lasting;
  for (const Fault& fault : c.faults) {
    if (is_partition(fault) && may_be_missed(c, fault)) lasting.push_back(&fault);
  }
  return lasting;
}

const Fault* lasting_partition(const Case& c) {
  const std::vector<const Fault*> lasting = lasting_partitions(c);
  return lasting.empty() ? nullptr : lasting.front();
}

bool is_inside(const Fault& partition, Rank rank) {
  const Rank host = rank / kRanksOfHost;
  return host >= partition.rank / kRanksOfHost && host <= partition.peer / kRanksOfHost;
}

}  // namespace unisono::sim
