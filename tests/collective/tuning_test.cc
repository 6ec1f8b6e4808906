// Selection tables from a file, end to end: they decide between native and plans, and how large
// buffers are read, and never what a call computes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "comm/init.h"
#include "tests/collective/collective_case.h"
#include "tests/support/rank_job.h"
#include "tests/support/segment_bytes.h"
#include "transports/shm/segment.h"

namespace unisono::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// UNISONO_TUNING names a file with this text as long as it lives.
class TuningFile {
 public:
  explicit TuningFile(const std::string& text)
      : path_(testing::TempDir() + "tuning_" + std::to_string(getpid()) + ".txt") {
    std::ofstream(path_) << text;
    setenv("UNISONO_TUNING", path_.c_str(), 1);
  }
  ~TuningFile() {
    unsetenv("UNISONO_TUNING");
    unlink(path_.c_str());
  }
  TuningFile(const TuningFile&) = delete;

 private:
  std::string path_;
};

void run_small_matrix(Communicator& comm) {
  std::size_t number = 0;
  for (int c = 0; c < static_cast<int>(Collective::kSend); ++c) {
    for (const std::size_t count : {0ul, 1ul, 100ul, 3000ul, 150'000ul}) {
      CollectiveCase each{static_cast<Collective>(c), DataType::kInt32, OpKind::kSum, count};
      each.root = static_cast<Rank>(++number % static_cast<std::size_t>(comm.size()));
      each.in_place = number % 2 == 0 && each.collective != Collective::kAllToAllV;
      const std::string wrong = run_case(comm, each);
      if (!wrong.empty()) throw std::runtime_error(describe(each) + ": " + wrong);
    }
  }
}

// 1e8 + 1 - 1e8 in float32 is 0 or 1: the canonical tree of three ranks gives 0 everywhere, a ring
// begins each block at another rank and gives 1 in one of them.
std::size_t ones_of_a_sum(Communicator& comm, bool asynchronous) {
  const float mine[]{1e8f, 1.0f, -1e8f};
  const std::vector<float> in(30, mine[comm.rank()]);
  std::vector<float> out(in.size());
  if (asynchronous) {
    comm.all_reduce_async(in, out, ops::sum).wait();
  } else {
    comm.all_reduce(in, out, ops::sum);
  }
  return static_cast<std::size_t>(std::count(out.begin(), out.end(), 1.0f));
}

TEST(Tuning, ForcesAPlanOverSharedMemory) {
  const TuningFile file("all_reduce shm 3 3 any any ring - 0\n");
  run_ranks(3, "shm", [](Communicator& comm) {
    EXPECT_EQ(ones_of_a_sum(comm, false), 10u);
    EXPECT_EQ(ones_of_a_sum(comm, true), 10u);
    EXPECT_THAT(comm.explain(Collective::kAllReduce, 120),
                AllOf(HasSubstr("ring in 1 chunk"), HasSubstr("line 1: all_reduce shm 3 3")));
  });
}

TEST(Tuning, LeavesSharedMemoryNativeWithoutAFile) {
  run_ranks(3, "shm", [](Communicator& comm) {
    EXPECT_EQ(ones_of_a_sum(comm, false), 0u);
    EXPECT_EQ(ones_of_a_sum(comm, true), 0u);
  });
}

TEST(Tuning, SwitchesBetweenNativeAndPlansBySize) {
  const TuningFile file(
      "all_reduce shm 3 3 any  64 native auto 0\n"
      "all_reduce shm 3 3 any 120 ring   -    0\n");
  run_ranks(3, "shm", [](Communicator& comm) {
    for (int round = 0; round < 3; ++round) {
      EXPECT_EQ(ones_of_a_sum(comm, round % 2 == 0), 10u);
      int value = comm.rank();
      comm.all_reduce(&value, &value, 1, DataType::kInt32, ops::sum);
      EXPECT_EQ(value, 3);
    }
    run_small_matrix(comm);
  });
}

TEST(Tuning, ServesCallsThatTheTablesPlanRefuses) {
  const TuningFile file("all_reduce shm 3 3 any any ring - 0\n");
  run_ranks(3, "shm", [](Communicator& comm) {
    const float mine[]{1e8f, 1.0f, -1e8f};
    std::vector<float> data(30, mine[comm.rank()]);
    comm.all_reduce(data, ops::sum, {.order = Order::kCanonical});
    EXPECT_EQ(data, std::vector<float>(30, 0.0f));
  });
}

TEST(Tuning, ForcesPlansOfEveryCollectiveOverSharedMemory) {
  const TuningFile file(
      "all_reduce       shm 1 any any any ring               - 4096\n"
      "reduce           shm 1 any any any binomial           - 0\n"
      "broadcast        shm 1 any any any pipelined_chain    - 4096\n"
      "all_gather       shm 1 any any any bruck              - 0\n"
      "all_gather_v     shm 1 any any any ring               - 0\n"
      "reduce_scatter   shm 1 any any any ring               - 0\n"
      "reduce_scatter_v shm 1 any any any direct             - 0\n"
      "gather           shm 1 any any any linear             - 0\n"
      "gather_v         shm 1 any any any linear             - 0\n"
      "scatter          shm 1 any any any binomial           - 0\n"
      "scatter_v        shm 1 any any any linear             - 0\n"
      "all_to_all       shm 1 any any any pairwise           - 0\n"
      "all_to_all_v     shm 1 any any any linear             - 0\n"
      "barrier          shm 1 any any any dissemination      - 0\n"
      "scan             shm 1 any any any recursive_doubling - 0\n"
      "exscan           shm 1 any any any linear             - 0\n");
  for (const int ranks : {2, 3}) spawn_processes(ranks, "shm", &run_small_matrix);
}

TEST(Tuning, ForcesNativeBySingleCopy) {
  std::string text;
  for (int c = 0; c < static_cast<int>(Collective::kSend); ++c) {
    text += std::string(name_of(static_cast<Collective>(c))) +
            " shm 1 any any any native single_copy 0\n";
  }
  const TuningFile file(text);
  for (const int ranks : {2, 3}) spawn_processes(ranks, "shm", &run_small_matrix);
}

// What the windows of a communicator cost after a large call of ordinary memory.
std::size_t reserved_after_a_large_call(const std::string& table) {
  const TuningFile file(table);
  std::atomic<std::size_t> reserved{0};
  run_ranks(2, "shm", [&](Communicator& comm) {
    std::vector<float> data(300'000, 1.0f);
    comm.all_reduce(data, ops::sum);
    EXPECT_EQ(data, std::vector<float>(300'000, 2.0f));
    if (comm.rank() == 0) {
      reserved = reserved_segment_bytes();
    }
  });
  return reserved;
}

TEST(Tuning, DecidesWhetherLargeBuffersGoThroughTheWindow) {
  // Ranks that are threads read each other's memory in place, unless the table says otherwise.
  EXPECT_LT(reserved_after_a_large_call("all_reduce shm 2 2 any any native single_copy 0\n"),
            shm::kWindowBytes);
  EXPECT_GE(reserved_after_a_large_call("all_reduce shm 2 2 any any native window 0\n"),
            shm::kWindowBytes);
  setenv("UNISONO_ACCESS", "window", 1);
  EXPECT_GE(reserved_after_a_large_call("all_reduce shm 2 2 any any native single_copy 0\n"),
            shm::kWindowBytes);
  unsetenv("UNISONO_ACCESS");
}

TEST(Tuning, TellsRanksThatShareCoresFromThoseThatDoNot) {
  const TuningFile file(
      "barrier shm 1 any own    any native window      0\n"
      "barrier shm 1 any shared any native single_copy 0\n");
  run_ranks(1, "auto", [](Communicator& comm) {
    EXPECT_THAT(comm.explain(Collective::kBarrier, 0), HasSubstr("a processor for each rank"));
  });
  // Two ranks on one processor share it on every machine, and so do those of a part.
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  run_ranks(2, "shm", [](Communicator& comm) {
    EXPECT_THAT(comm.explain(Collective::kBarrier, 0),
                AllOf(HasSubstr("more ranks than processors"), HasSubstr("line 2: barrier")));
    Communicator alone = comm.split(comm.rank());
    EXPECT_THAT(alone.explain(Collective::kBarrier, 0), HasSubstr("line 2: barrier"));
  });
  sched_setaffinity(0, sizeof before, &before);
}

// One rank waits in shared cells and the others on links: neither sees the other's first word.
TEST(Tuning, MakesNoHangOfADisagreementAcrossItsBorders) {
  const TuningFile file(
      "all_reduce shm 3 3 any  64 native auto 0\n"
      "all_reduce shm 3 3 any any ring   -    0\n");
  for (const Rank odd : {0, 1}) {
    for (const std::size_t odd_count : {10ul, 100ul}) {
      run_ranks(3, "shm", [&](Communicator& comm) {
        std::vector<float> data(100, 1.0f);
        const std::size_t count = comm.rank() == odd ? odd_count : 110 - odd_count;
        try {
          comm.all_reduce(data.data(), data.data(), count, DataType::kFloat32, ops::sum);
          for (;;) comm.barrier();
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kMismatch) << error.what();
          EXPECT_THAT(error.what(), AllOf(HasSubstr("count 10,"), HasSubstr("count 100,")));
        }
      });
    }
  }
}

TEST(Tuning, RefusesAMalformedFileBeforeAnyRankStarts) {
  const TuningFile file("# one\nall_reduce shm 2 2 any 64K ring - 0\n");
  try {
    spawn(2, [](Communicator&) { ADD_FAILURE() << "a rank ran"; }, {.timeout = kCallTimeout});
    ADD_FAILURE() << "the file was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("UNISONO_TUNING="), HasSubstr("line 2: "),
                                    HasSubstr("bytes_max '64K'")));
  }
}

}  // namespace
}  // namespace unisono::test
