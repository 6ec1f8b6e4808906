// Order::kCanonical is bitwise the pairwise tree over ranks, Order::kExact the exact sum rounded
// once, whatever runs them: on data whose sums are not exact, so that any other order shows.
#include <gtest/gtest.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <tuple>

#include "algorithms/algorithm.h"
#include "tests/collective/collective_case.h"
#include "tests/support/exact_oracle.h"
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

// The canonical reference: recursive, one element at a time, each node rounded to the type.
template <typename T>
T tree(const std::vector<std::vector<T>>& leaves, int low, int high, std::size_t i, OpKind op) {
  if (high - low == 1) return leaves[static_cast<std::size_t>(low)][i];
  const int split = low + static_cast<int>(std::bit_floor(static_cast<unsigned>(high - low - 1)));
  const float left = widen(tree(leaves, low, split, i, op));
  const float right = widen(tree(leaves, split, high, i, op));
  return from_float<T>(op == OpKind::kProduct ? left * right : left + right);
}

template <typename T>
T exact_sum(const std::vector<std::vector<T>>& leaves, int high, std::size_t i) {
  std::vector<double> addends;
  for (int rank = 0; rank < high; ++rank) {
    addends.push_back(widen(leaves[static_cast<std::size_t>(rank)][i]));
  }
  return from_float<T>(static_cast<float>(exact_test::rounded_sum(data_type_of<T>, addends)));
}

struct Rule {
  Order order;
  OpKind op;

  friend auto operator<=>(const Rule&, const Rule&) = default;
};

template <typename T>
T expected_of(const std::vector<std::vector<T>>& leaves, int high, std::size_t i, Rule rule) {
  const auto [order, op] = rule;
  const bool is_exact = order == Order::kExact && op != OpKind::kProduct;
  const T whole = is_exact ? exact_sum(leaves, high, i) : tree(leaves, 0, high, i, op);
  if (op != OpKind::kAverage) return whole;
  return from_float<T>(widen(whole) / static_cast<float>(high));
}

// `count` numbers of each of kRanksMax ranks; near each other, or all over the type's range.
template <typename T>
std::vector<std::vector<T>> random_leaves(std::size_t count, bool are_near) {
  const int spread = std::is_same_v<T, Float16> ? 10 : 60;
  std::vector<std::vector<T>> leaves(kRanksMax);
  for (std::size_t rank = 0; rank < leaves.size(); ++rank) {
    std::mt19937_64 random = random_stream(rank * 1'000'003 + count);
    leaves[rank].reserve(count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto mantissa = static_cast<float>(below(random, 1 << 24)) / (1 << 24);
      const float sign = below(random, 2) == 0 ? 1.0f : -1.0f;
      const int exponent = are_near ? 0 : static_cast<int>(below(random, 2 * spread)) - spread;
      leaves[rank].push_back(from_float<T>(sign * std::ldexp(0.25f + mantissa, exponent)));
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

  // The products of canonical trees stay in range where the numbers are near each other.
  const std::vector<std::vector<T>>& leaves(std::size_t count, Order order) {
    const std::scoped_lock lock(mutex_);
    auto& leaves = leaves_[{count, order}];
    if (leaves.empty()) leaves = random_leaves<T>(count, order == Order::kCanonical);
    return leaves;
  }

  /// Of the leaves of `count` numbers of the ranks below `high`.
  const std::vector<T>& expected(std::size_t count, int high, Rule rule) {
    const auto& leaves = this->leaves(count, rule.order);
    const std::scoped_lock lock(mutex_);
    std::vector<T>& values = expected_[{count, high, rule}];
    for (std::size_t i = values.size(); i < count; ++i) {
      values.push_back(expected_of(leaves, high, i, rule));
    }
    return values;
  }

 private:
  std::mutex mutex_;
  std::map<std::pair<std::size_t, Order>, std::vector<std::vector<T>>> leaves_;
  std::map<std::tuple<std::size_t, int, Rule>, std::vector<T>> expected_;
};

struct Subject {
  Collective collective;
  std::string_view algorithm;  ///< empty: selection decides
  Rule rule;
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
            .in = Reference<T>::instance().leaves(given, s.rule.order)[rank].data(),
            .out = out.data(),
            .count = count,
            .type = data_type_of<T>,
            .op = {s.rule.op}};
  if (s.collective == Collective::kReduceScatterV) call.in_counts = counts;
  call.options.order = s.rule.order;
  call.options.algorithm = s.algorithm;
  comm.run(call);
  int high = comm.size();
  if (s.collective == Collective::kScan) high = comm.rank() + 1;
  if (s.collective == Collective::kExscan) high = comm.rank();
  if (high == 0 || (s.collective == Collective::kReduce && rank != 0)) return;
  const T* expected = Reference<T>::instance().expected(given, high, s.rule).data();
  if (scatters) expected += rank * count;
  for (std::size_t i = 0; i < count; ++i) {
    if (std::memcmp(&out[i], &expected[i], sizeof(T)) == 0) continue;
    complaints->add(comm.rank(),
                    std::string(name_of(s.collective)) + " of " + std::to_string(count) + " " +
                        std::string(name_of(data_type_of<T>)) + ", " +
                        std::string(name_of(s.rule.order)) + ", by '" + std::string(s.algorithm) +
                        "' differs at " + std::to_string(i));
    return;
  }
}

std::vector<Subject> subjects(Order order, int ranks, bool native) {
  std::vector<Subject> all;
  const auto add = [&](Collective collective, std::string_view algorithm) {
    const bool prefix = collective == Collective::kScan || collective == Collective::kExscan;
    all.push_back({collective, algorithm, {order, OpKind::kSum}});
    if (!prefix) all.push_back({collective, algorithm, {order, OpKind::kAverage}});
    if (prefix && order == Order::kCanonical) {
      all.push_back({collective, algorithm, {order, OpKind::kProduct}});
    }
  };
  for (const algorithms::Algorithm& algorithm : algorithms::catalog()) {
    plan::PlanRequest request;
    request.collective = algorithm.collective;
    request.ranks = ranks;
    request.order = order;
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

void check_everything(Order order, int ranks, const std::string& transport) {
  SeedTrace seed_trace;
  Complaints complaints;
  run_ranks(ranks, transport, [&](Communicator& comm) {
    const bool native = transport == "auto" && ranks > 1;
    auto number = static_cast<std::size_t>(ranks);
    for (const Subject& s : subjects(order, ranks, native)) {
      if (is_anothers_case(++number, 3)) continue;
      for (const std::size_t count : {std::size_t{1}, std::size_t{37}, std::size_t{3001}}) {
        check<float>(comm, s, count, &complaints);
        check<Float16>(comm, s, count, &complaints);
        check<Bfloat16>(comm, s, count, &complaints);
      }
    }
  });
  complaints.report(std::string(name_of(order)) + ", " + transport + " with " +
                    std::to_string(ranks) + " ranks");
}

class Canonical : public testing::TestWithParam<std::string> {};
class Exact : public testing::TestWithParam<std::string> {};

TEST_P(Canonical, EqualsTheTreeForOneToNineRanks) {
  for (int ranks = 1; ranks <= kRanksMax; ++ranks) {
    if (is_sanitized() && !is_full_run() && ranks > 5 && ranks % 4 != 0) continue;
    check_everything(Order::kCanonical, ranks, GetParam());
  }
}

TEST_P(Exact, EqualsTheSumRoundedOnce) {
  for (const int ranks : {1, 2, 3, 4, 6, 9}) check_everything(Order::kExact, ranks, GetParam());
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
  for (const int ranks : {2, 3, 5, 8}) {
    check_everything(Order::kCanonical, ranks, GetParam());
  }
}

TEST_P(Exact, EqualsTheSumRoundedOnceInSmallChunks) {
  const SmallChunks chunks;
  check_everything(Order::kExact, 5, GetParam());
}

TEST_P(Canonical, EqualsTheTreeWithSmallEagerMessages) {
  setenv("UNISONO_EAGER_BYTES", "64", 1);
  for (const int ranks : {3, 4}) check_everything(Order::kCanonical, ranks, GetParam());
  unsetenv("UNISONO_EAGER_BYTES");
}

// Eight leaves over N ranks, each of which first merges its own: the same bits for every N.
template <typename T>
void check_nesting(Communicator& comm, Complaints* complaints) {
  constexpr int kLeaves = 8;
  for (const std::size_t count : {std::size_t{5}, std::size_t{4099}}) {
    const auto& leaves = Reference<T>::instance().leaves(count, Order::kCanonical);
    const int each = kLeaves / comm.size();
    std::vector<T> data(count);
    for (std::size_t i = 0; i < count; ++i) {
      data[i] = tree(leaves, comm.rank() * each, (comm.rank() + 1) * each, i, OpKind::kSum);
    }
    comm.all_reduce(data, ops::sum, {.order = Order::kCanonical});
    const auto& expected =
        Reference<T>::instance().expected(count, kLeaves, {Order::kCanonical, OpKind::kSum});
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
INSTANTIATE_TEST_SUITE_P(Transports, Exact, testing::ValuesIn(tested_transports()),
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

// Ranks that swap their inputs: the canonical tree's result may change, and does here.
TEST(ExactOrder, DoesNotDependOnWhichRankHasWhichAddend) {
  constexpr int kRanks = 4;
  constexpr std::size_t kCount = 1000;
  const auto& leaves = Reference<float>::instance().leaves(kCount, Order::kExact);
  std::vector<float> sums[2][2];  // by order and place
  run_ranks(kRanks, "auto", [&](Communicator& comm) {
    for (const Order order : {Order::kCanonical, Order::kExact}) {
      for (const int moved : {0, 1}) {
        const int place = (comm.rank() + moved) % kRanks;
        std::vector<float> data = leaves[static_cast<std::size_t>(place)];
        comm.all_reduce(data, ops::sum, {.order = order});
        if (comm.rank() == 0) sums[order == Order::kExact][moved] = data;
      }
    }
  });
  EXPECT_NE(sums[0][0], sums[0][1]);
  EXPECT_EQ(sums[1][0], sums[1][1]);
}

TEST(ExactOrder, IsKeptByEveryCallWhereTheJobAsksForIt) {
  const auto& leaves = Reference<float>::instance().leaves(37, Order::kExact);
  const Rule rule{Order::kExact, OpKind::kSum};
  const std::vector<float>& expected = Reference<float>::instance().expected(37, 3, rule);
  for (const char* transport : {"auto", "tcp"}) {
    setenv("UNISONO_ORDER", "exact", 1);
    run_ranks(3, transport, [&](Communicator& comm) {
      std::vector<float> data = leaves[static_cast<std::size_t>(comm.rank())];
      comm.all_reduce(data, ops::sum);
      EXPECT_EQ(data, expected) << "run";
      data = leaves[static_cast<std::size_t>(comm.rank())];
      comm.all_reduce_async(data, ops::sum, {.order = Order::kCanonical}).wait();
      EXPECT_EQ(data, expected) << "start, which asks for less";
      data = leaves[static_cast<std::size_t>(comm.rank())];
      comm.split(0, comm.rank()).all_reduce(data, ops::sum);
      EXPECT_EQ(data, expected) << "of a part";
    });
    unsetenv("UNISONO_ORDER");
  }
}

TEST(ExactOrder, RanksThatAskForOthersFindOut) {
  run_ranks(3, "auto", [](Communicator& comm) {
    std::vector<float> data(10, 1.0f);
    try {
      comm.all_reduce(data, ops::sum,
                      {.order = comm.rank() == 1 ? Order::kExact : Order::kCanonical});
      ADD_FAILURE() << "orders that differ went through";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kMismatch) << error.what();
      EXPECT_NE(std::string(error.what()).find("exact"), std::string::npos) << error.what();
    }
  });
}

}  // namespace
}  // namespace unisono::test
