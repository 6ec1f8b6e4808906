#include "tests/collective/matrix_cases.h"

#include "plan/plan_sizes.h"
#include "tests/support/watchdog.h"

namespace unisono::test {
namespace {

struct Size {
  std::size_t count;
  bool in_place;
};

// Edges of counts, of ranks, of a cell of shared memory and of an eager message.
std::vector<Size> sizes_of(DataType type, int ranks) {
  const std::size_t bytes = size_of(type);
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<Size> sizes;
  for (const bool in_place : {false, true}) {
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{7},
          std::size_t{64}, std::size_t{1000}, n - 1, n, n + 1, 16'384 / bytes, 16'384 / bytes + 1,
          40'000 / bytes + 5}) {
      sizes.push_back({count, in_place});
    }
  }
  return sizes;
}

struct Subject {
  Collective collective;
  DataType type;
  OpKind op;
};

std::vector<Subject> subjects() {
  std::vector<Subject> all;
  for (int c = 0; c < static_cast<int>(Collective::kSend); ++c) {
    const auto collective = static_cast<Collective>(c);
    const bool prefix = collective == Collective::kScan || collective == Collective::kExscan;
    for (int t = 0; t < kDataTypeCount; ++t) {
      const auto type = static_cast<DataType>(t);
      for (int o = 0; o < kOpKindCount; ++o) {
        const auto op = static_cast<OpKind>(o);
        if (!reduces(collective) && o > 0) break;
        if (reduces(collective) && !is_meaningful(op, type)) continue;
        if (prefix && op == OpKind::kAverage) continue;
        all.push_back({collective, type, op});
      }
      if (collective == Collective::kBarrier) break;
    }
  }
  return all;
}

// Which of the sizes the job runs for a subject.
std::vector<Size> share(const std::vector<Size>& all, std::size_t job, std::size_t subject) {
  if (is_full_run()) return all;
  return {all[(2 * job + subject) % all.size()], all[(2 * job + 1 + subject) % all.size()]};
}

}  // namespace

std::vector<CollectiveCase> cases_of_job(std::size_t job, int ranks) {
  std::vector<CollectiveCase> cases;
  std::size_t subject = 0;
  for (const Subject& s : subjects()) {
    ++subject;
    if (is_anothers_case(subject + job, ranks > 3 ? 6 : 3)) continue;
    for (const Size& size : share(sizes_of(s.type, ranks), job, subject)) {
      CollectiveCase c{s.collective, s.type, s.op, size.count};
      c.in_place = size.in_place && s.collective != Collective::kAllToAllV;
      c.root = static_cast<Rank>((subject + size.count) % static_cast<std::size_t>(ranks));
      c.displaced = (subject / 2 + job) % 2 == 0 && s.collective != Collective::kReduceScatterV;
      c.skew = subject % 3 == 0 ? 1 : 0;
      cases.push_back(c);
    }
  }
  return cases;
}

std::vector<CollectiveCase> large_cases(int ranks) {
  constexpr std::size_t kLargeBytes = (std::size_t{1} << 20) + 4096;
  auto number = static_cast<std::size_t>(ranks);
  std::vector<CollectiveCase> cases;
  for (const Subject& s : subjects()) {
    const bool chosen = (s.type == DataType::kFloat32 && s.op == OpKind::kSum) ||
                        (s.type == DataType::kBfloat16 && s.op == OpKind::kAverage) ||
                        (s.type == DataType::kUint8 &&
                         s.op == (reduces(s.collective) ? OpKind::kBitXor : OpKind::kSum)) ||
                        (s.type == DataType::kComplex128 && s.op == OpKind::kPremultipliedSum);
    if (!chosen || s.collective == Collective::kBarrier) continue;
    if (is_anothers_case(++number, ranks > 3 ? 4 : 2)) continue;
    const bool whole = plan::is_one_vector(s.collective);
    const std::size_t blocks = whole ? 1 : static_cast<std::size_t>(ranks);
    CollectiveCase c{s.collective, s.type, s.op, kLargeBytes / size_of(s.type) / blocks + 3};
    c.in_place = cases.size() % 2 == 0 && s.collective != Collective::kAllToAllV;
    c.root = ranks - 1;
    cases.push_back(c);
  }
  return cases;
}

}  // namespace unisono::test
