// Calls like the one before take a shorter way through the library: nothing that a first call would
// find may be missed there.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/rank_job.h"

namespace unisono::test {
namespace {

class RepeatedCalls : public testing::TestWithParam<const char*> {};

template <typename Function>
ErrorCode code_of(Function&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kOk;
}

TEST_P(RepeatedCalls, ReadAndWriteTheBuffersOfTheirOwnCall) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    constexpr int kTimes = 20;
    std::vector<std::vector<std::int32_t>> in, out;
    for (int i = 0; i < kTimes; ++i) {
      in.push_back({100 * i + comm.rank(), i});
      out.push_back({0, 0});
    }
    for (int i = 0; i < kTimes; ++i) {
      const auto k = static_cast<std::size_t>(i);
      comm.all_reduce(in[k], out[k], ops::sum);
    }
    for (int i = 0; i < kTimes; ++i) {
      EXPECT_EQ(out[static_cast<std::size_t>(i)], (std::vector<std::int32_t>{300 * i + 3, 3 * i}));
      EXPECT_EQ(in[static_cast<std::size_t>(i)][0], 100 * i + comm.rank());
    }
  });
}

TEST_P(RepeatedCalls, MayTurnFromOutOfPlaceToInPlaceAndBack) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<double> in{1.5, 2.0}, out(2);
    for (int i = 0; i < 6; ++i) {
      in = {1.5, 2.0};
      if (i % 3 == 2) {
        comm.all_reduce(in, ops::sum);
        EXPECT_EQ(in, (std::vector<double>{3.0, 4.0}));
      } else {
        comm.all_reduce(in, out, ops::sum);
        EXPECT_EQ(out, (std::vector<double>{3.0, 4.0}));
        EXPECT_EQ(in, (std::vector<double>{1.5, 2.0}));
      }
    }
  });
}

TEST_P(RepeatedCalls, WithOtherArgumentsAreOtherCalls) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<std::int32_t> in{4 + comm.rank(), 7}, out(2);
    const auto reduced = [&](auto op) {
      comm.all_reduce(in, out, op);
      return out[0];
    };
    for (int i = 0; i < 3; ++i) EXPECT_EQ(reduced(ops::sum), 9);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(reduced(ops::max), 5);
    EXPECT_EQ(reduced(ops::sum), 9);
    for (Rank root : {0, 0, 1, 1, 0}) {
      std::int32_t value = comm.rank() == root ? 10 + root : -1;
      comm.broadcast(&value, 1, DataType::kInt32, root);
      EXPECT_EQ(value, 10 + root);
    }
    out = {0, -5};
    comm.all_reduce(in.data(), out.data(), 1, DataType::kInt32, ops::sum);
    EXPECT_EQ(out, (std::vector<std::int32_t>{9, -5}));
  });
}

// A rank that waited long has left the short way; the others are still on it.
TEST(RepeatedCallsByShm, AfterOneThatNamedItsAlgorithmChooseTheirOwn) {
  std::atomic<int> calling{0};
  run_ranks(2, "shm", [&](Communicator& comm) {
    for (int i = 0; i < 20; ++i) {
      const bool is_late = comm.rank() == i % 2;
      if (is_late) {
        while (calling.load() <= i) std::this_thread::yield();
        for (int turn = 0; turn < 2000; ++turn) std::this_thread::yield();
      } else {
        calling.store(i + 1);
      }
      std::int32_t in = comm.rank(), out = -1;
      comm.all_reduce(&in, &out, 1, DataType::kInt32, ops::sum, {.algorithm = "native"});
      EXPECT_EQ(out, 1);
      comm.all_reduce(&in, &out, 1, DataType::kInt32, ops::sum);
      EXPECT_EQ(out, 1);
    }
  });
}

TEST_P(RepeatedCalls, KeepTheirOrderAmongAsynchronousOnes) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<std::int64_t> a{1}, b{2}, first(1), second(1), third(1);
    for (int i = 0; i < 50; ++i) {
      first = second = third = {0};
      comm.all_reduce(a, first, ops::sum);
      Request pending = comm.all_reduce_async(b, second, ops::sum);
      comm.all_reduce(a, third, ops::sum);
      comm.all_reduce(a, first, ops::sum);
      pending.wait();
      EXPECT_EQ(first[0], 2);
      EXPECT_EQ(second[0], 4);
      EXPECT_EQ(third[0], 2);
    }
  });
}

TEST_P(RepeatedCalls, WithBadBuffersAreRefused) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<float> data(8, 1.0F), out(4);
    const auto call = [&](const void* from, void* to) {
      comm.all_reduce(from, to, 4, DataType::kFloat32, ops::sum);
    };
    call(data.data(), out.data());
    call(data.data(), out.data());
    EXPECT_EQ(code_of([&] { call(data.data(), data.data() + 2); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of([&] { call(nullptr, out.data()); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of([&] { call(data.data(), nullptr); }), ErrorCode::kInvalidArgument);
    // A refused call is no call: the ranks still agree.
    call(data.data(), out.data());
    EXPECT_EQ(out, std::vector<float>(4, 2.0F));
  });
}

TEST_P(RepeatedCalls, ThatDifferBetweenRanksAreAnErrorOnBoth) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<float> in(8, 1.0F), out(8);
    const auto call = [&](std::size_t count) {
      comm.all_reduce(in.data(), out.data(), count, DataType::kFloat32, ops::sum);
    };
    for (int i = 0; i < 5; ++i) call(4);
    EXPECT_EQ(code_of([&] { call(comm.rank() == 0 ? 4 : 5); }), ErrorCode::kMismatch);
    EXPECT_EQ(code_of([&] { call(4); }), ErrorCode::kMismatch);
  });
}

// Ranks compare operators by their names, not by where these stand.
TEST_P(RepeatedCalls, SeeThatTheNameOfAnOperatorHasChangedInItsPlace) {
  static const auto choose = [](const void* in, void* inout, std::size_t count, DataType,
                                void* name) {
    const auto* from = static_cast<const std::int32_t*>(in);
    auto* into = static_cast<std::int32_t*>(inout);
    for (std::size_t i = 0; i < count; ++i) {
      into[i] =
          *static_cast<const char*>(name) == 'm' ? std::max(from[i], into[i]) : from[i] + into[i];
    }
  };
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<std::int32_t> in{3 + comm.rank()}, out(1), elsewhere{in};
    char name[] = "add";
    const auto call = [&](const char* text, std::vector<std::int32_t>& from, auto& into) {
      std::strcpy(name, text);
      comm.all_reduce(from, into, ops::user_op(name, choose, name));
      return into[0];
    };
    for (int i = 0; i < 3; ++i) EXPECT_EQ(call("add", in, out), 7);
    EXPECT_EQ(comm.rank() == 0 ? call("max", in, out) : call("max", elsewhere, elsewhere), 4);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(call("add", in, out), 7);
    EXPECT_EQ(code_of([&] { call(comm.rank() == 0 ? "add" : "max", in, out); }),
              ErrorCode::kMismatch);
  });
}

// The counts are the caller's and gone when the next call begins.
TEST_P(RepeatedCalls, LeaveNothingBehindOfTheCountsOfACall) {
  run_ranks(3, GetParam(), [](Communicator& comm) {
    std::vector<std::int32_t> in(4, comm.rank()), out(12);
    for (int i = 0; i < 4; ++i) {
      auto counts = std::make_unique<std::vector<std::size_t>>(std::vector<std::size_t>{2, 0, 3});
      comm.all_gather_v(in.data(), out.data(), *counts, {}, DataType::kInt32);
      counts.reset();
      comm.barrier();
    }
    const auto index = static_cast<std::size_t>(Collective::kAllGatherV);
    const TrafficReport report = comm.traffic();
    EXPECT_EQ(report.calls[index], 4U);
    const std::size_t own = comm.rank() == 0 ? 2 : comm.rank() == 1 ? 0 : 3;
    EXPECT_EQ(report.by_collective[index].bytes_received, 4U * (5U - own) * 4U);
  });
}

TEST_P(RepeatedCalls, AfterCloseAreRefused) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    Communicator other = comm.duplicate();
    std::vector<float> in(1, 1.0F), out(1);
    for (int i = 0; i < 3; ++i) other.all_reduce(in, out, ops::sum);
    other.close();
    EXPECT_EQ(code_of([&] { other.all_reduce(in, out, ops::sum); }), ErrorCode::kClosed);
  });
}

TEST_P(RepeatedCalls, AreCounted) {
  run_ranks(2, GetParam(), [](Communicator& comm) {
    std::vector<float> in(3, 1.0F), out(3);
    for (int i = 0; i < 7; ++i) comm.all_reduce(in, out, ops::sum);
    const auto index = static_cast<std::size_t>(Collective::kAllReduce);
    const TrafficReport report = comm.traffic();
    EXPECT_EQ(report.calls[index], 7U);
    EXPECT_EQ(report.by_collective[index].bytes_sent, 7U * 12U);
    EXPECT_EQ(comm.traffic().calls[index], 7U);
    comm.barrier();
    comm.all_reduce(in, out, ops::sum);
    EXPECT_EQ(comm.traffic().by_collective[index].messages_received, 8U);
  });
}

INSTANTIATE_TEST_SUITE_P(Transport, RepeatedCalls, testing::Values("shm", "tcp"),
                         [](const auto& tested) { return std::string(tested.param); });

}  // namespace
}  // namespace unisono::test
