#include "tests/sim/case.h"

#include <algorithm>
#include <array>

#include "algorithms/algorithm.h"
#include "base/collective.h"
#include "rendezvous/failure/standby.h"
#include "tests/sim/case_parts.h"
#include "tests/sim/random.h"

namespace unisono::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Elements of all buffers of a rank, so that no case takes long.
constexpr std::size_t kElementsMax = 1 << 14;
// Of one case in so many a call is longer than one piece.
constexpr std::uint64_t kLongOneIn = 40;
// Above, a rank has so many steps in a call at most.
constexpr int kManyRanks = 64;
constexpr std::size_t kStepsMax = 1000;

// A type whose reductions are exact with so many ranks (see tests/support/oracle.h).
DataType any_type(Random& random, int ranks) {
  constexpr std::array kWide{DataType::kInt32,   DataType::kInt64,   DataType::kUint64,
                             DataType::kFloat64, DataType::kFloat32, DataType::kComplex128};
  if (ranks > 8) return kWide[random.below(kWide.size())];
  return static_cast<DataType>(random.below(kDataTypeCount));
}

OpKind any_op(Random& random, DataType type, Collective collective, int ranks) {
  const bool is_prefix = collective == Collective::kScan || collective == Collective::kExscan;
  for (;;) {
    const auto op = static_cast<OpKind>(random.below(kOpKindCount));
    const bool may_overflow = ranks > 8 && op == OpKind::kProduct;
    const bool suits = !(is_prefix && op == OpKind::kAverage) && !may_overflow;
    if (is_meaningful(op, type) && suits) return op;
  }
}

plan::PlanRequest request_of(const Operation& operation, int ranks) {
  const test::CollectiveCase& what = operation.what;
  plan::PlanRequest request;
  request.collective = what.collective;
  request.ranks = ranks;
  request.root = what.root;
  request.chunks = operation.chunks;
  request.order = what.options.order;
  return request;
}

bool can_run(const Operation& operation, int ranks) {
  if (!operation.is_collective() || operation.is_native()) return true;
  const algorithms::Algorithm* const algorithm =
      algorithms::find(operation.what.collective, operation.what.options.algorithm);
  return algorithm != nullptr && algorithm->refuses(request_of(operation, ranks)).empty();
}

// Of a rank in the middle; many ranks with a step for each other fill the memory.
bool has_few_steps(const Operation& operation, int ranks) {
  if (ranks <= kManyRanks) return true;
  const algorithms::Algorithm* const algorithm =
      algorithms::find(operation.what.collective, operation.what.options.algorithm);
  plan::PlanRequest request = request_of(operation, ranks);
  request.rank = ranks / 2 + 1;
  return algorithm->build(request).steps.size() <= kStepsMax;
}

std::size_t any_count(Random& random, const Case& c, bool has_blocks) {
  std::size_t most = kElementsMax / static_cast<std::size_t>(c.ranks);
  if (!has_blocks) most = kElementsMax / 8;
  const std::uint64_t long_one_in = c.sharing == Sharing::kNone ? kLongOneIn : kLongOneIn / 4;
  if (random.one_in(long_one_in) && c.ranks <= 8) most = 300'000 / (has_blocks ? 8 : 1);
  for (std::uint64_t times = random.below(8); times > 0; --times) most /= 3;
  return random.below(most + 1);
}

// All buffers of a collective: its type, its length, where they lie.
void choose_buffers(Random& random, const Case& c, Operation* operation) {
  test::CollectiveCase& what = operation->what;
  what.type = any_type(random, c.ranks);
  what.op = any_op(random, what.type, what.collective, c.ranks);
  const bool has_blocks = !test::reduces(what.collective) || test::has_counts(what.collective) ||
                          what.collective == Collective::kReduceScatter;
  what.count = any_count(random, c, has_blocks && what.collective != Collective::kBroadcast);
  what.in_place = random.one_in(3) && what.collective != Collective::kAllToAllV;
  what.displaced = random.one_in(2) && what.collective != Collective::kReduceScatterV;
  what.skew = random.one_in(4) ? random.below(8) : 0;
}

}  // namespace

Operation any_operation(Random& random, const Case& c) {
  Operation operation;
  test::CollectiveCase& what = operation.what;
  do {
    const auto catalog = algorithms::catalog();
    const algorithms::Algorithm& algorithm = catalog[random.below(catalog.size())];
    what.collective = algorithm.collective;
    what.options.algorithm = algorithm.name;
    what.options.order = random.one_in(4) ? Order::kCanonical : Order::kAny;
    what.root = static_cast<Rank>(random.below(static_cast<std::uint64_t>(c.ranks)));
    operation.chunks = static_cast<int>(1 + random.below(1 + random.below(6)));
  } while (!can_run(operation, c.ranks) || !has_few_steps(operation, c.ranks));
  choose_buffers(random, c, &operation);
  return operation;
}

namespace {

Operation any_native_operation(Random& random, const Case& c) {
  Operation operation;
  test::CollectiveCase& what = operation.what;
  do {
    what.collective = static_cast<Collective>(random.below(kCollectiveCount));
  } while (!facts_of(what.collective).is_collective());
  what.options.algorithm = "native";
  what.options.order = random.one_in(4) ? Order::kCanonical : Order::kAny;
  what.root = static_cast<Rank>(random.below(static_cast<std::uint64_t>(c.ranks)));
  operation.blocks = random.one_in(2);
  operation.in_heap = random.one_in(4);
  choose_buffers(random, c, &operation);
  return operation;
}

Operation any_exchange(Random& random, const Case& c) {
  Operation operation;
  const auto ranks = static_cast<std::uint64_t>(c.ranks);
  Exchange& exchange = operation.exchange;
  // The one has a receive for each other.
  const bool to_one = c.ranks <= kManyRanks && random.one_in(3);
  exchange = {.pattern = to_one ? Exchange::Pattern::kToOne : Exchange::Pattern::kPairs,
              .shift = static_cast<Rank>(random.below(ranks)),
              .messages = static_cast<int>(random.between(1, to_one ? 2 : 4)),
              .own_tags = random.one_in(2),
              .from_any = random.one_in(3),
              .blocks = random.one_in(2),
              .more_room = random.one_in(4) ? static_cast<int>(random.between(0, 16)) - 8 : 0};
  operation.what.root = static_cast<Rank>(random.below(ranks));
  operation.what.type = any_type(random, c.ranks);
  operation.what.count = any_count(random, c, to_one);
  return operation;
}

Operation any_split(Random& random) {
  return {.what = {}, .parts = static_cast<int>(random.between(1, 3)), .colors = random.next()};
}

void insert_split(Random& random, Case* c) {
  c->takes_turns = random.one_in(2);
  const auto at = static_cast<std::ptrdiff_t>(random.below(c->operations.size()));
  c->operations.insert(c->operations.begin() + at, any_split(random));
}

}  // namespace

Network any_network(Random& random) {
  Network network;
  network.delay_min = random.of_any_scale_up_to(microseconds(100));
  network.delay_max = network.delay_min + random.of_any_scale_up_to(milliseconds(2));
  network.late_one_in = random.one_in(3) ? static_cast<unsigned>(random.between(2, 50)) : 0;
  network.late = random.of_any_scale_up_to(milliseconds(200));
  network.streams = random.one_in(2) ? 1 : static_cast<int>(random.between(2, 3));
  network.frames_max = random.between(1, random.one_in(2) ? 4 : 256);
  network.bytes_max = 1ull << random.between(8, 20);
  network.refuse_one_in = random.one_in(3) ? static_cast<unsigned>(random.between(2, 20)) : 0;
  network.lend_one_in = random.one_in(2) ? static_cast<unsigned>(random.between(1, 8)) : 0;
  network.partial_one_in = random.one_in(2) ? static_cast<unsigned>(random.between(2, 8)) : 0;
  // Credit for a few headers only, up to what real transports give.
  network.eager_bytes = 1ull << random.between(4, 14);
  network.credit_bytes = random.one_in(2) ? network.eager_bytes + random.between(64, 1024)
                                          : network.eager_bytes * 16 + 256;
  return network;
}

namespace {

Fault any_fault(Random& random, int ranks, Duration within) {
  const auto any_rank = [&] {
    return static_cast<Rank>(random.below(static_cast<std::uint64_t>(ranks)));
  };
  Fault fault;
  fault.rank = any_rank();
  fault.peer = any_rank();
  fault.at = random.of_any_scale_up_to(within);
  // The first ranks hold the arbiter, or may.
  if (random.one_in(3)) fault.rank = static_cast<Rank>(random.below(std::min(ranks, 4)));
  // Neighbours have a link in most algorithms.
  if (random.one_in(2)) fault.peer = (fault.rank + 1) % ranks;
  switch (random.below(9)) {
    case 0:
    case 1:
    case 2:
      fault.kind = Fault::Kind::kCrash;
      break;
    case 3:
      fault.kind = fault.rank == fault.peer ? Fault::Kind::kCrash : Fault::Kind::kCut;
      break;
    case 4:
      fault.kind = Fault::Kind::kIsolate;
      break;
    case 5:
      fault.kind = Fault::Kind::kSlow;
      break;
    case 6:
      fault.kind = Fault::Kind::kPause;
      fault.lasts = random.of_any_scale_up_to(seconds(6));
      break;
    default:
      fault.kind = Fault::Kind::kStop;
      if (!random.one_in(3)) fault.lasts = random.of_any_scale_up_to(milliseconds(900));
  }
  return fault;
}

Fault any_other_call(Random& random, const Case& c) {
  return {.kind = Fault::Kind::kDiffers,
          .rank = static_cast<Rank>(random.below(static_cast<std::uint64_t>(c.ranks))),
          .call = random.below(c.operations.size())};
}

// Of a rank on another host than rank 0; mostly nothing else happens, or one thing does.
void add_reset(Random& random, Case* c) {
  c->faults.resize(std::min<std::size_t>(c->faults.size(), random.one_in(2) ? 1 : 0));
  const auto others = static_cast<std::uint64_t>(c->ranks - kRanksOfHost);
  // The first ones are standbys, or beside one.
  const std::uint64_t below = random.one_in(2) ? std::min<std::uint64_t>(others, 3) : others;
  c->faults.push_back(
      {.kind = Fault::Kind::kReset,
       .rank = kRanksOfHost + static_cast<Rank>(random.below(below)),
       .at = random.of_any_scale_up_to(milliseconds(random.one_in(3) ? 3000 : 60))});
}

template <typename T>
std::vector<T> half_of(const std::vector<T>& all, bool second) {
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  return second ? std::vector<T>(middle, all.end()) : std::vector<T>(all.begin(), middle);
}

// Cases with half, and with one less, of a list.
template <typename T>
void with_less(const Case& c, std::vector<T> Case::*list, std::vector<Case>* cases) {
  const std::vector<T>& all = c.*list;
  if (all.size() > 2) {
    for (const bool second : {false, true}) {
      cases->push_back(c);
      cases->back().*list = half_of(all, second);
    }
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    cases->push_back(c);
    std::vector<T>& fewer = cases->back().*list;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// A stopped arbiter is missed by its silence alone. Some that stop are missed.
void choose_silence(Random& random, Case* c) {
  const auto may_hold_it = [&](const Fault& fault) {
    return fault.rank <= (c->faults.size() > 1 ? rendezvous::kStandbys * kRanksOfHost : 0);
  };
  for (const Fault& fault : c->faults) {
    const bool stops = fault.kind == Fault::Kind::kStop && fault.is_for_ever();
    if (stops && may_hold_it(fault)) c->silence = milliseconds(3000);
  }
  for (Fault& fault : c->faults) {
    const bool stops = fault.kind == Fault::Kind::kStop && !fault.is_for_ever();
    if (stops && c->silence.count() > 0 && random.one_in(4)) {
      fault.lasts = c->silence + seconds(1) + random.up_to(seconds(5));
    }
  }
}

Fault any_fault_on_host(Random& random, const Case& c) {
  Fault fault;
  fault.rank = static_cast<Rank>(random.below(static_cast<std::uint64_t>(c.ranks)));
  fault.at = random.of_any_scale_up_to(milliseconds(random.one_in(3) ? 3000 : 60));
  switch (random.below(7)) {
    case 0:
      fault.kind = Fault::Kind::kSlow;
      break;
    case 1:
      fault.kind = Fault::Kind::kPause;
      fault.lasts = random.of_any_scale_up_to(seconds(6));
      break;
    case 2:
    case 3:
      fault.kind = Fault::Kind::kStop;
      if (!random.one_in(3)) fault.lasts = random.of_any_scale_up_to(milliseconds(900));
      break;
    default:
      fault.kind = Fault::Kind::kCrash;
  }
  return fault;
}

// A job on one host.
Case make_sharing_case(std::uint64_t seed, const Limits& limits) {
  Random random(seed);
  Case c;
  c.seed = seed;
  const auto least = static_cast<std::uint64_t>(limits.ranks_min);
  const auto most = static_cast<std::uint64_t>(std::min(limits.ranks_max, kSharingRanksMax));
  c.ranks = static_cast<int>(random.between(least, random.between(least, most)));
  c.sharing = random.one_in(3) ? Sharing::kThreads : Sharing::kProcesses;
  c.access = static_cast<AccessPath>(random.below(kAccessPathNames.size()));
  c.mixes_access = c.access != AccessPath::kAutomatic && random.one_in(3);
  // Drawn apart, so that the rest of a seed's case stays what it was.
  Random levels(~seed);
  c.domain_ranks = levels.one_in(3) ? 0 : 2 << levels.below(2);
  c.interrupted_one_in = random.one_in(4) ? 0 : 2u << random.below(7);
  c.buffered_one_in = random.one_in(2) ? 0 : 1u << random.below(4);
  c.at_once = random.one_in(3) ? static_cast<int>(random.between(2, 4)) : 1;
  c.computes = random.of_any_scale_up_to(milliseconds(50));
  c.network = any_network(random);
  for (std::uint64_t left = random.between(1, 10); left > 0; --left) {
    c.operations.push_back(random.one_in(8) ? any_exchange(random, c)
                                            : any_native_operation(random, c));
    // The same call again is made in a shorter way.
    const std::uint64_t times = random.one_in(4) ? random.between(1, 6) : 0;
    for (std::uint64_t i = 0; i < times; ++i) c.operations.push_back(c.operations.back());
  }
  if (random.one_in(6)) {
    insert_split(random, &c);
  }
  if (!limits.with_faults || random.one_in(3)) return c;
  if (random.one_in(6)) {
    c.faults.push_back(any_other_call(random, c));
    return c;
  }
  c.silence = random.one_in(2) ? milliseconds(3000) : milliseconds(0);
  c.shrinks = !random.one_in(4);
  for (std::uint64_t faults = random.between(1, 2); faults > 0; --faults) {
    c.faults.push_back(any_fault_on_host(random, c));
  }
  choose_silence(random, &c);
  return c;
}

}  // namespace

AccessPath access_of(const Case& c, Rank rank) {
  if (!c.mixes_access) return c.access;
  // Those that are chosen, not found by trial.
  const auto chosen = static_cast<int>(kAccessPathNames.size()) - 1;
  return static_cast<AccessPath>(1 + (static_cast<int>(c.access) - 1 + rank) % chosen);
}

namespace {

Case make_usual_case(std::uint64_t seed, const Limits& limits) {
  Random random(seed);
  Case c;
  c.seed = seed;
  const auto least = static_cast<std::uint64_t>(limits.ranks_min);
  const auto most = static_cast<std::uint64_t>(limits.ranks_max);
  // Most have few ranks, and some all.
  c.ranks = static_cast<int>(random.between(
      least,
      random.between(least, random.one_in(3) ? most : std::min<std::uint64_t>(most, least + 7))));
  c.at_once = random.one_in(3) ? static_cast<int>(random.between(2, 4)) : 1;
  c.computes = random.of_any_scale_up_to(milliseconds(50));
  c.network = any_network(random);
  const std::uint64_t operations = random.between(1, c.ranks > 16 ? 3 : 10);
  for (std::uint64_t i = 0; i < operations; ++i) {
    c.operations.push_back(random.one_in(4) ? any_exchange(random, c) : any_operation(random, c));
  }
  // What all say in a split, many ranks have no memory for.
  if (c.ranks <= kManyRanks && random.one_in(4)) {
    insert_split(random, &c);
  }
  if (!limits.with_faults || random.one_in(3)) return c;
  if (random.one_in(8)) {
    c.faults.push_back(any_other_call(random, c));
    return c;
  }
  if (random.one_in(5)) {
    add_partition(random, &c);
    return c;
  }
  c.silence = random.one_in(2) ? milliseconds(3000) : milliseconds(0);
  c.shrinks = !random.one_in(4);
  // Some strike while others are dealt with.
  const Duration within = random.one_in(3) ? seconds(3) : milliseconds(60);
  for (std::uint64_t faults = random.between(1, 1 + random.below(3)); faults > 0; --faults) {
    c.faults.push_back(any_fault(random, c.ranks, within));
  }
  if (random.one_in(3)) {
    // Who holds the arbiter, or does next, dies while the others agree.
    c.faults.push_back({.kind = Fault::Kind::kCrash,
                        .rank = static_cast<Rank>(random.below(2)),
                        .at = c.faults.front().at + random.of_any_scale_up_to(milliseconds(600))});
  }
  choose_silence(random, &c);
  // Drawn apart, so that the other seeds' cases are as they were without.
  Random resets(~seed);
  if (c.ranks > kRanksOfHost && resets.one_in(8)) add_reset(resets, &c);
  return c;
}

}  // namespace

Case make_case(std::uint64_t seed, const Limits& limits) {
  if (limits.shares_memory) return make_sharing_case(seed, limits);
  if (limits.grows) return make_growing_case(seed, limits);
  Case c = make_usual_case(seed, limits);
  choose_limits(&c);
  add_second_partition(&c);
  return c;
}

std::set<Rank> struck(const Case& c, Duration by) {
  std::set<Rank> ranks;
  for (const Fault& fault : c.faults) {
    if (fault.kind == Fault::Kind::kPartition || fault.kind == Fault::Kind::kSlow ||
        fault.kind == Fault::Kind::kPause || (!fault.is_in_growth && fault.at > by)) {
      continue;
    }
    const bool is_missed = c.silence.count() > 0 && fault.lasts >= c.silence;
    // In growth a stop may be longer than others wait for what they have sent to go out.
    const bool is_short = fault.kind == Fault::Kind::kStop && !fault.is_for_ever() && !is_missed;
    if (is_short && !fault.is_in_growth) continue;
    // Which rank a newcomer is shows when it is in.
    ranks.insert(fault.is_of_newcomer ? -1 : fault.rank);
    if (fault.kind == Fault::Kind::kCut) ranks.insert(fault.peer);
    // Of two that differ neither is the odd one.
    if (fault.kind == Fault::Kind::kDiffers && c.ranks == 2) ranks = {0, 1};
  }
  return ranks;
}

std::set<Rank> culprits(const Case& c) {
  std::set<Rank> ranks = struck(c);
  const Fault* const partition = lasting_partition(c);
  // Each part names those that it does not hear, or itself.
  for (Rank rank = 0; partition != nullptr && rank < c.ranks; ++rank) ranks.insert(rank);
  return ranks;
}

std::vector<Operation> calls_of(const Case& c, Rank rank) {
  std::vector<Operation> calls = c.operations;
  for (const Fault& fault : c.faults) {
    if (fault.kind != Fault::Kind::kDiffers || fault.rank != rank) continue;
    if (fault.call >= calls.size() || !calls[fault.call].is_collective()) continue;
    Operation& call = calls[fault.call];
    const bool is_native = call.is_native();
    call.differs = true;
    if (test::has_counts(call.what.collective)) {
      // Where counts differ nobody can tell whose are right.
      call.what = {};
      call.what.options.algorithm = is_native ? "native" : "dissemination";
    } else if (call.what.collective == Collective::kBarrier) {
      call.what = {};
      call.what.collective = Collective::kAllGather;
      call.what.options.algorithm = is_native ? "native" : "ring";
    } else {
      ++call.what.count;
    }
  }
  return calls;
}

bool can_shrink(const Case& c) {
  const bool stops = std::any_of(c.faults.begin(), c.faults.end(), [](const Fault& fault) {
    return fault.kind == Fault::Kind::kStop && fault.is_for_ever();
  });
  return c.shrinks && (!stops || c.silence.count() > 0);
}

Case adapted_to(Case c, int ranks) {
  c.ranks = ranks;
  for (Operation& operation : c.operations) operation.what.root %= ranks;
  std::erase_if(c.operations, [&](const Operation& each) { return !can_run(each, ranks); });
  std::erase_if(c.faults, [&](const Fault& fault) {
    if (fault.is_of_newcomer) return false;
    return fault.rank >= ranks || (fault.kind == Fault::Kind::kCut && fault.peer >= ranks);
  });
  return c;
}

std::vector<Operation> calls_of_part(const Case& c, int ranks) {
  std::vector<Operation> calls = adapted_to(c, ranks).operations;
  std::erase_if(calls, [](const Operation& each) { return each.is_split(); });
  return calls;
}

std::vector<Case> smaller(const Case& c) {
  std::vector<Case> cases;
  for (const int ranks : {2, c.ranks / 2, c.ranks - 1}) {
    if (ranks >= 2 && ranks < c.ranks) cases.push_back(adapted_to(c, ranks));
  }
  with_less(c, &Case::operations, &cases);
  with_less(c, &Case::faults, &cases);
  for (std::size_t i = 0; i < c.operations.size(); ++i) {
    const Operation& operation = c.operations[i];
    if (operation.what.count > 1) {
      cases.push_back(c);
      cases.back().operations[i].what.count /= 2;
    }
    if (operation.exchange.messages > 1) {
      cases.push_back(c);
      cases.back().operations[i].exchange.messages = 1;
    }
    if (operation.chunks > 1) {
      cases.push_back(c);
      cases.back().operations[i].chunks = 1;
    }
  }
  const auto with_network = [&](auto&& change) {
    cases.push_back(c);
    change(cases.back().network);
  };
  const Network& network = c.network;
  if (network.late_one_in > 0) with_network([](Network& n) { n.late_one_in = 0; });
  if (network.refuse_one_in > 0) with_network([](Network& n) { n.refuse_one_in = 0; });
  if (network.lend_one_in > 0) with_network([](Network& n) { n.lend_one_in = 0; });
  if (network.partial_one_in > 0) with_network([](Network& n) { n.partial_one_in = 0; });
  if (network.streams > 1) with_network([](Network& n) { n.streams = 1; });
  if (c.at_once > 1) {
    cases.push_back(c);
    cases.back().at_once = 1;
  }
  if (c.shrinks) {
    cases.push_back(c);
    cases.back().shrinks = false;
  }
  if (c.domain_ranks > 0) {
    cases.push_back(c);
    cases.back().domain_ranks = 0;
  }
  for (unsigned Case::*each : {&Case::interrupted_one_in, &Case::buffered_one_in}) {
    if (c.*each == 0) continue;
    cases.push_back(c);
    cases.back().*each = 0;
  }
  if (c.grows()) add_smaller_growing(c, &cases);
  std::erase_if(cases, [](const Case& each) { return each.operations.empty(); });
  return cases;
}

}  // namespace unisono::sim
