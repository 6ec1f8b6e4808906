// Cases of jobs that grow: some ranks die, others come in their place, and more is lost meanwhile.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "tests/sim/case_parts.h"

namespace unisono::sim {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A member waits so often in one call of grow(), and a newcomer until it is in.
constexpr std::uint64_t kStepsMax = 60;

enum class Keys : std::uint8_t { kNone, kOwn, kReversed, kAny };

int key_of(Random& random, Keys keys, int process, int processes) {
  switch (keys) {
    case Keys::kOwn:
      return process;
    case Keys::kReversed:
      return processes - process;
    case Keys::kAny:
      return static_cast<int>(random.below(4)) - 1;
    case Keys::kNone:
      break;
  }
  return 0;
}

// Some come in the same moment, and take one place.
void add_newcomers(Random& random, int dead, Keys keys, Case* c) {
  Growing& growing = c->growing;
  const int newcomers = std::max(1, dead + static_cast<int>(random.below(3)) - (dead > 1 ? 1 : 0));
  const bool together = random.one_in(2);
  const Duration first = random.of_any_scale_up_to(seconds(3));
  for (int i = 0; i < newcomers; ++i) {
    const Duration starts = together ? first + random.of_any_scale_up_to(milliseconds(2))
                                     : random.of_any_scale_up_to(seconds(3));
    growing.newcomers.push_back({starts, key_of(random, keys, c->ranks + i, c->ranks + newcomers)});
  }
  for (int i = 0; i < c->ranks; ++i) {
    growing.keys.push_back(key_of(random, keys, i, c->ranks + newcomers));
  }
}

// At any step of growth, of which most takes some store delays.
Fault any_fault_in_growth(Random& random, const Case& c) {
  Fault fault;
  fault.is_of_newcomer = random.one_in(2);
  fault.is_in_growth = true;
  const auto members = static_cast<std::uint64_t>(c.ranks);
  fault.rank =
      static_cast<Rank>(random.below(fault.is_of_newcomer ? c.growing.newcomers.size() : members));
  // Often the one that leads the others.
  if (!fault.is_of_newcomer && random.one_in(3)) fault.rank = static_cast<Rank>(random.below(2));
  fault.at = random.of_any_scale_up_to(random.one_in(3) ? seconds(8) : seconds(1));
  if (!random.one_in(3)) {
    fault.step = random.between(1, random.between(1, kStepsMax));
    fault.at = random.of_any_scale_up_to(milliseconds(20));
  }
  switch (random.below(8)) {
    case 0:
      fault.kind = Fault::Kind::kSlow;
      break;
    case 1:
      fault.kind = Fault::Kind::kPause;
      fault.lasts = random.of_any_scale_up_to(seconds(6));
      break;
    case 2:
      fault.kind = Fault::Kind::kStop;
      if (random.one_in(3)) break;
      fault.lasts = random.of_any_scale_up_to(seconds(5));
      // Longer than the others wait for it, and not so long that it is missed.
      if (random.one_in(2)) fault.lasts = c.growing.timeout + random.up_to(seconds(2));
      break;
    default:
      fault.kind = Fault::Kind::kCrash;
  }
  return fault;
}

// As in a job that does not grow, but that hosts have newcomers too; often in the middle of growth.
Fault any_partition(Random& random, const Case& c) {
  const auto processes = static_cast<std::uint64_t>(c.ranks) + c.growing.newcomers.size();
  const auto one = static_cast<Rank>(random.below(processes));
  const auto other = static_cast<Rank>(random.below(processes));
  Fault fault{
      .kind = Fault::Kind::kPartition, .rank = std::min(one, other), .peer = std::max(one, other)};
  fault.is_in_growth = !random.one_in(3);
  fault.at = random.of_any_scale_up_to(seconds(3));
  if (fault.is_in_growth && !random.one_in(3)) {
    fault.step = random.between(1, random.between(1, kStepsMax));
    fault.at = random.of_any_scale_up_to(milliseconds(20));
  }
  if (random.one_in(3)) {
    fault.lasts = random.of_any_scale_up_to(milliseconds(1900));
  } else if (random.one_in(4)) {
    fault.lasts = milliseconds(2500) + random.up_to(milliseconds(2500));  // some miss it
  }
  return fault;
}

bool stops_for_ever(const Fault& fault) {
  return fault.kind == Fault::Kind::kStop && fault.is_for_ever();
}

Case make_without_partition(std::uint64_t seed, const Limits& limits) {
  Random random(seed);
  Case c;
  c.seed = seed;
  const auto least = static_cast<std::uint64_t>(limits.ranks_min);
  const auto most = static_cast<std::uint64_t>(std::min(limits.ranks_max, kGrowingRanksMax));
  c.ranks = static_cast<int>(random.between(least, random.between(least, most)));
  c.computes = random.of_any_scale_up_to(milliseconds(50));
  c.network = any_network(random);
  for (std::uint64_t left = random.between(1, 3); left > 0; --left) {
    c.operations.push_back(any_operation(random, c));
  }
  c.silence = random.one_in(2) ? milliseconds(3000) : milliseconds(0);
  int dead = 0;
  if (limits.with_faults && c.ranks > 2) {
    dead = static_cast<int>(random.below(static_cast<std::uint64_t>(c.ranks - 1) / 2 + 1));
  }
  for (int i = 0; i < dead; ++i) {
    c.faults.push_back(
        {.kind = Fault::Kind::kCrash,
         .rank = static_cast<Rank>(random.below(static_cast<std::uint64_t>(c.ranks))),
         .at = random.of_any_scale_up_to(milliseconds(200))});
  }
  c.growing.target = c.ranks + (dead == 0 || random.one_in(4) ? 1 : 0);
  add_newcomers(random, dead, static_cast<Keys>(random.below(4)), &c);
  c.growing.wait = std::chrono::ceil<milliseconds>(random.of_any_scale_up_to(seconds(4)));
  c.growing.timeout = seconds(1) + std::chrono::ceil<milliseconds>(random.up_to(seconds(4)));
  c.growing.store = {
      .most = random.of_any_scale_up_to(milliseconds(random.one_in(4) ? 100 : 3)),
      .late_one_in = random.one_in(3) ? static_cast<unsigned>(random.between(2, 30)) : 0,
      .late = random.of_any_scale_up_to(milliseconds(500))};
  if (random.one_in(3)) {
    // Long enough for all newcomers.
    c.growing.wait = seconds(4) + std::chrono::ceil<milliseconds>(20 * c.growing.store.most);
  }
  if (!limits.with_faults || random.one_in(3)) return c;
  for (std::uint64_t faults = random.between(1, 2); faults > 0; --faults) {
    c.faults.push_back(any_fault_in_growth(random, c));
  }
  // A stopped rank is missed by its silence alone.
  if (std::any_of(c.faults.begin(), c.faults.end(), stops_for_ever)) c.silence = milliseconds(3000);
  return c;
}

}  // namespace

// Drawn apart, so that the rest of a seed's case is as it was without.
Case make_growing_case(std::uint64_t seed, const Limits& limits) {
  Case c = make_without_partition(seed, limits);
  Random random(~seed);
  if (!limits.with_faults) return c;
  if (random.one_in(4)) {
    c.faults.push_back(any_partition(random, c));
    if (random.one_in(3)) {
      const auto processes = static_cast<std::uint64_t>(c.ranks) + c.growing.newcomers.size();
      c.growing.store.host_of = static_cast<int>(random.below(processes));
    }
    c.silence = milliseconds(3000);
  }
  choose_limits(&c);
  return c;
}

void add_smaller_growing(const Case& c, std::vector<Case>* cases) {
  const auto with = [&](auto&& change) {
    cases->push_back(c);
    change(cases->back().growing);
  };
  if (c.growing.newcomers.size() > 1) {
    const auto last = static_cast<Rank>(c.growing.newcomers.size()) - 1;
    with([](Growing& growing) { growing.newcomers.pop_back(); });
    std::erase_if(cases->back().faults, [last](const Fault& fault) {
      return fault.is_of_newcomer && fault.rank == last;
    });
  }
  if (c.growing.store.late_one_in > 0) with([](Growing& g) { g.store.late_one_in = 0; });
  if (c.growing.store.most > Duration::zero()) with([](Growing& g) { g.store.most = {}; });
}

std::string describe(const Growing& growing) {
  const auto ms = [](Duration d) { return std::chrono::duration<double, std::milli>(d).count(); };
  std::string text = fmt::format(
      "  grows to {} ranks, waits {} ms, meets within {} ms; keys {}; store up to {:.3f} ms, one "
      "in {} up to {:.3f}{}\n",
      growing.target, growing.wait.count(), growing.timeout.count(), fmt::join(growing.keys, " "),
      ms(growing.store.most), growing.store.late_one_in, ms(growing.store.late),
      growing.store.host_of < 0
          ? ""
          : fmt::format(", on the host of process {}", growing.store.host_of));
  for (const Growing::Newcomer& each : growing.newcomers) {
    text += fmt::format("  a newcomer of key {} starts at {:.3f} ms\n", each.key, ms(each.starts));
  }
  return text;
}

}  // namespace unisono::sim
