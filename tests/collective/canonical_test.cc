// Order::kCanonical is bitwise the pairwise tree over ranks, whatever runs it: on data whose sums
// are not exact, so that any other order shows.
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <tuple>

#include "algorithms/algorithm.h"
#include "tests/collective/collective_case.h"
#include "tests/support/rank_job.h"
#include "tests/support/seed.h"
#include "tests/support/tested_transports.h"
#include "tests/support/watchdog.h"
#include "unisono/float_types.h"

namespace unisono::test {
namespace {

constexpr int kRanksMax = 9;

float widen(float value) { return value; }
template <typename T>
float widen(T value) {
  return to_float(value);
}

// The reference: recursive, one element at a time, each node rounded to the type.
template <typename T>
T tree(const std::vector<std::vector<T>>& leaves, int low, int high, std::size_t i, OpKind op) {
  if (high - low == 1) return leaves[static_cast<std::size_t>(low)][i];
  const int split = low + static_cast<int>(std::bit_floor(static_cast<unsigned>(high - low - 1)));
  const float left = widen(tree(leaves, low, split, i, op));
  const float right = widen(tree(leaves, split, high, i, op));
  return from_float<T>(op == OpKind::kProduct ? left * right : left + right);
}

template <typename T>
T expected_of(const std::vector<std::vector<T>>& leaves, int high, std::size_t i, OpKind op) {
  const T whole = tree(leaves, 0, high, i, op);
  if (op != OpKind::kAverage) return whole;
  return from_float<T>(widen(whole) / static_cast<float>(high));
}

// `count` numbers of each of kRanksMax ranks.
template <typename T>
std::vector<std::vector<T>> random_leaves(std::size_t count) {
  std::vector<std::vector<T>> leaves(kRanksMax);
  for (std::size_t rank = 0; rank < leaves.size(); ++rank) {
    std::mt19937_64 random = random_stream(rank * 1'000'003 + count);
    leaves[rank].reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto mantissa = static_cast<float>(below(random, 1 << 24)) / (1 << 24);
      const float sign = below(random, 2) == 0 ? 1.0f : -1.0f;
      leaves[rank].push_back(from_float<T>(sign * (0.25f + mantissa)));
    }
  }
  return leaves;
}

// What ranks give and what must come of it. Each is worked out once, by whoever asks first, and
// stays where it is. Any thread.
template <typename T>
class Reference {
 public:
  static Reference& instance() {
    static Reference reference;
    return reference;
  }

  const std::vector<std::vector<T>>& leaves(std::size_t count) {
    const std::scoped_lock lock(mutex_);
    auto& leaves = leaves_[count];
    if (leaves.empty()) leaves = random_leaves<T>(count);
    return leaves;
  }

  /// Of the leaves of `count` numbers of the ranks below `high`.
  const std::vector<T>& expected(std::size_t count, int high, OpKind op) {
    const auto& leaves = this->leaves(count);
    const std::scoped_lock lock(mutex_);
    std::vector<T>& values = expected_[{count, high, op}];
    for (std::size_t i = values.size(); i < count; ++i) {
      values.push_back(expected_of(leaves, high, i, op));
    }
    return values;
  }

 private:
  std::mutex mutex_;
  std::map<std::size_t, std::vector<std::vector<T>>> leaves_;
  std::map<std::tuple<std::size_t, int, OpKind>, std::vector<T>> expected_;
};

struct Subject {
  Collective collective;
  std::string_view algorithm;  ///< empty: selection decides
  OpKind op;
};

// One rank's call; complains about the first element that differs.
template <typename T>
void check(Communicator& comm, const Subject& s, std::size_t count, Complaints* complaints) {
  const auto n = static_cast<std::size_t>(comm.size());
  const bool scatters =
      s.collective == Collective::kReduceScatter || s.collective == Collective::kReduceScatterV;
  const std::size_t given = scatters ? count * n : count;
  const auto rank = static_cast<std::size_t>(comm.rank());
  const std::vector<std::size_t> counts(n, count);
  std::vector<T> out(count);
  Call call{.collective = s.collective,
            .in = Reference<T>::instance().leaves(given)[rank].data(),
            .out = out.data(),
            .count = count,
            .type = data_type_of<T>,
            .op = {s.op}};
  if (s.collective == Collective::kReduceScatterV) call.in_counts = counts;
  call.options.order = Order::kCanonical;
  call.options.algorithm = s.algorithm;
  comm.run(call);
  int high = comm.size();
  if (s.collective == Collective::kScan) high = comm.rank() + 1;
  if (s.collective == Collective::kExscan) high = comm.rank();
  if (high == 0 || (s.collective == Collective::kReduce && rank != 0)) return;
  const T* expected = Reference<T>::instance().expected(given, high, s.op).data();
  if (scatters) expected += rank * count;
  for (std::size_t i = 0; i < count; ++i) {
    if (std::memcmp(&out[i], &expected[i], sizeof(T)) == 0) continue;
    complaints->add(comm.rank(),
                    std::string(name_of(s.collective)) + " of " + std::to_string(count) + " " +
                        std::string(name_of(data_type_of<T>)) + " by '" + std::string(s.algorithm) +
                        "' differs at " + std::to_string(i));
    return;
  }
}

std::vector<Subject> subjects(int ranks, bool native) {
  std::vector<Subject> all;
  const auto add = [&](Collective collective, std::string_view algorithm) {
    const bool prefix = collective == Collective::kScan || collective == Collective::kExscan;
    all.push_back({collective, algorithm, OpKind::kSum});
    all.push_back({collective, algorithm, prefix ? OpKind::kProduct : OpKind::kAverage});
  };
  for (const algorithms::Algorithm& algorithm : algorithms::catalog()) {
    plan::PlanRequest request;
    request.collective = algorithm.collective;
    request.ranks = ranks;
    request.order = Order::kCanonical;
    if (algorithm.canonical && reduces(algorithm.collective) &&
        algorithm.refuses(request).empty()) {
      add(algorithm.collective, algorithm.name);
    }
  }
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduce, Collective::kReduceScatter,
        Collective::kReduceScatterV, Collective::kScan, Collective::kExscan}) {
    add(collective, "");
    if (native) add(collective, "native");
  }
  return all;
}

void check_everything(int ranks, const std::string& transport) {
  SeedTrace seed_trace;
  Complaints complaints;
  run_ranks(ranks, transport, [&](Communicator& comm) {
    const bool native = transport == "auto" && ranks > 1;
    for (const Subject& s : subjects(ranks, native)) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{37}, std::size_t{3001}}) {
        check<float>(comm, s, count, &complaints);
        check<Float16>(comm, s, count, &complaints);
        check<Bfloat16>(comm, s, count, &complaints);
      }
    }
  });
  complaints.report(transport + " with " + std::to_string(ranks) + " ranks");
}

class Canonical : public testing::TestWithParam<std::string> {};

TEST_P(Canonical, EqualsTheTreeForOneToNineRanks) {
  for (int ranks = 1; ranks <= kRanksMax; ++ranks) {
    if (is_sanitized() && !is_full_run() && ranks > 5 && ranks % 4 != 0) continue;
    check_everything(ranks, GetParam());
  }
}

// A tuning file cuts every block into chunks of 512 bytes.
class SmallChunks {
 public:
  SmallChunks() : path_("/tmp/unisono-canonical-" + std::to_string(getpid()) + ".txt") {
    std::ofstream file(path_);
    for (const algorithms::Algorithm& algorithm : algorithms::catalog()) {
      if (!algorithm.canonical || !reduces(algorithm.collective)) continue;
      file << name_of(algorithm.collective) << " any 1 64 any any " << algorithm.name << " - 512\n";
    }
    file.close();
    setenv("UNISONO_TUNING", path_.c_str(), 1);
  }
  ~SmallChunks() {
    unsetenv("UNISONO_TUNING");
    unlink(path_.c_str());
  }

 private:
  std::string path_;
};

TEST_P(Canonical, EqualsTheTreeInSmallChunks) {
  const SmallChunks chunks;
  for (const int ranks : {2, 3, 5, 8}) check_everything(ranks, GetParam());
}

TEST_P(Canonical, EqualsTheTreeWithSmallEagerMessages) {
  setenv("UNISONO_EAGER_BYTES", "64", 1);
  for (const int ranks : {3, 4}) check_everything(ranks, GetParam());
  unsetenv("UNISONO_EAGER_BYTES");
}

// Eight leaves over N ranks, each of which first merges its own: the same bits for every N.
template <typename T>
void check_nesting(Communicator& comm, Complaints* complaints) {
  constexpr int kLeaves = 8;
  for (const std::size_t count : {std::size_t{5}, std::size_t{4099}}) {
    const auto& leaves = Reference<T>::instance().leaves(count);
    const int each = kLeaves / comm.size();
    std::vector<T> data(count);
    for (std::size_t i = 0; i < count; ++i) {
      data[i] = tree(leaves, comm.rank() * each, (comm.rank() + 1) * each, i, OpKind::kSum);
    }
    comm.all_reduce(data, ops::sum, {.order = Order::kCanonical});
    const auto& expected = Reference<T>::instance().expected(count, kLeaves, OpKind::kSum);
    for (std::size_t i = 0; i < count; ++i) {
      if (std::memcmp(&data[i], &expected[i], sizeof(T)) == 0) continue;
      complaints->add(comm.rank(),
                      std::string(name_of(data_type_of<T>)) + " differs at " + std::to_string(i));
      break;
    }
  }
}

TEST_P(Canonical, NestsOverOneToEightRanks) {
  SeedTrace seed_trace;
  for (const int ranks : {1, 2, 4, 8}) {
    Complaints complaints;
    run_ranks(ranks, GetParam(), [&](Communicator& comm) {
      check_nesting<float>(comm, &complaints);
      check_nesting<Float16>(comm, &complaints);
      check_nesting<Bfloat16>(comm, &complaints);
    });
    complaints.report(std::to_string(ranks) + " ranks");
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, Canonical, testing::ValuesIn(tested_transports()),
                         [](const auto& info) { return info.param; });

TEST(CanonicalOrder, AlgorithmsThatDoNotDeclareItAreRefused) {
  run_ranks(3, "loopback", [](Communicator& comm) {
    std::vector<float> data(10, 1.0f);
    try {
      comm.all_reduce(data, ops::sum, {.algorithm = "ring", .order = Order::kCanonical});
      ADD_FAILURE() << "ring claimed the canonical order";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
    }
    comm.all_reduce(data, ops::sum, {.order = Order::kCanonical});
    EXPECT_EQ(data, std::vector<float>(10, 3.0f));
  });
}

}  // namespace
}  // namespace unisono::test
