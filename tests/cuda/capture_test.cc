// Collectives of threads that share a GPU, captured into a CUDA graph and replayed without the
// host; and what cannot be captured, refused in words.
#include <gmock/gmock.h>

#include <barrier>

#include "tests/cuda/device_user.h"
#include "tests/cuda/shared_capture.h"
#include "tests/support/barrier_guards.h"
#include "tests/support/rank_job.h"

namespace unisono::test {
namespace {

using testing::HasSubstr;

TEST(DeviceCapture, AGraphReplaysTheCollectivesOfAllRanks) {
  constexpr int kRanks = 3;
  constexpr int kReplays = 5;
  SharedCapture capture(kRanks);
  std::barrier<> every_rank(kRanks);
  run_device_ranks({.ranks = kRanks}, [&](Communicator& comm) {
    DeviceUser user;
    std::int64_t* const data = user.make<std::int64_t>({1, comm.rank()});
    std::int64_t* const all = user.make<std::int64_t>(std::vector<std::int64_t>(2 * kRanks));
    const InStep step(every_rank);
    const CallOptions options{.stream = user.stream()};
    const auto work = [&] {
      comm.all_reduce(data, data, 1, DataType::kInt64, ops::sum, options);
      comm.all_gather(data, all, 2, DataType::kInt64, options);
    };
    const CUgraph graph = capture.run(comm.rank(), user.stream(), work);
    EXPECT_EQ(user.look(data, 1)[0], 1) << "a capture runs nothing";
    step.with_all();
    EXPECT_EQ(graph != nullptr, comm.rank() == 0);
    if (graph != nullptr) {
      CUgraphExec executable = nullptr;
      expect_ok(function<decltype(&::cuGraphInstantiate)>("cuGraphInstantiateWithFlags")(
                    &executable, graph, 0),
                "cuGraphInstantiateWithFlags");
      for (int i = 0; i < kReplays; ++i) {
        expect_ok(function<decltype(&::cuGraphLaunch)>("cuGraphLaunch")(executable, user.stream()),
                  "cuGraphLaunch");
      }
      user.finish();
      expect_ok(function<decltype(&::cuGraphExecDestroy)>("cuGraphExecDestroy")(executable),
                "cuGraphExecDestroy");
      expect_ok(function<decltype(&::cuGraphDestroy)>("cuGraphDestroy")(graph), "cuGraphDestroy");
    }
    step.with_all();
    EXPECT_EQ(user.look(data, 1)[0], 243) << "three to the power of the replays";
    EXPECT_EQ(user.look(all, 6), (std::vector<std::int64_t>{243, 0, 243, 1, 243, 2}));
    work();
    user.finish();
    EXPECT_EQ(user.look(data, 1)[0], 729) << "calls outside of the graph go on";
  });
}

void begin_own_capture(CUstream stream) {
  expect_ok(function<decltype(&::cuStreamBeginCapture)>("cuStreamBeginCapture")(
                stream, CU_STREAM_CAPTURE_MODE_RELAXED),
            "cuStreamBeginCapture");
}

// The driver allows none of this in a capture, and gives no graph at its end.
void spoil_capture(CUstream stream) {
  EXPECT_EQ(driver()->StreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}
void end_spoilt_capture(CUstream stream) {
  CUgraph graph = nullptr;
  EXPECT_EQ(function<decltype(&::cuStreamEndCapture)>("cuStreamEndCapture")(stream, &graph),
            CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

void sum_in_stream(Communicator& comm, DeviceUser& user, float* data) {
  comm.all_reduce(data, data, 1, DataType::kFloat32, ops::sum, {.stream = user.stream()});
}
std::string failure_of_sum(Communicator& comm, DeviceUser& user, float* data) {
  return failure_of([&] { sum_in_stream(comm, user, data); });
}

TEST(DeviceCapture, AStagedCallIsRefusedAndTheCommunicatorGoesOn) {
  run_device_ranks({.ranks = 1, .devices = {}}, [](Communicator& comm) {
    DeviceUser user;
    float* const data = user.make<float>({4});
    begin_own_capture(user.stream());
    EXPECT_THAT(failure_of_sum(comm, user, data), HasSubstr("CUDA graph"));
    CUgraph graph = nullptr;
    expect_ok(
        function<decltype(&::cuStreamEndCapture)>("cuStreamEndCapture")(user.stream(), &graph),
        "cuStreamEndCapture");
    expect_ok(function<decltype(&::cuGraphDestroy)>("cuGraphDestroy")(graph), "cuGraphDestroy");
    sum_in_stream(comm, user, data);
    user.finish();
    EXPECT_EQ(user.look(data, 1)[0], 4);
  });
}

TEST(DeviceCapture, AStagedCallIsRefusedWhereTheCaptureIsSpoilt) {
  run_device_ranks({.ranks = 1, .devices = {}}, [](Communicator& comm) {
    DeviceUser user;
    float* const data = user.make<float>({4});
    begin_own_capture(user.stream());
    spoil_capture(user.stream());
    EXPECT_THAT(failure_of_sum(comm, user, data), HasSubstr("outside of the capture"));
    end_spoilt_capture(user.stream());
    EXPECT_EQ(failure_of_sum(comm, user, data), "");
    EXPECT_EQ(user.look(data, 1)[0], 4);
  });
}

TEST(DeviceCapture, ThatIsSpoiltIsRefusedOnAllAndTheCommunicatorGoesOn) {
  std::barrier<> both(2);
  run_device_ranks({.ranks = 2}, [&](Communicator& comm) {
    DeviceUser user;
    float* const data = user.make<float>({1});
    const InStep step(both);
    begin_own_capture(user.stream());
    spoil_capture(user.stream());
    EXPECT_THAT(failure_of_sum(comm, user, data), HasSubstr("rank 0 has a stream whose capture"));
    end_spoilt_capture(user.stream());
    step.with_all();
    EXPECT_EQ(failure_of_sum(comm, user, data), "");
    EXPECT_EQ(user.look(data, 1)[0], 2);
  });
}

// All learn of the operator in their exchange of metadata; then none of them can go on in kernels.
TEST(DeviceCapture, OfAUserOperatorIsRefusedOnAllRanksAndTheCommunicatorGoesOn) {
  constexpr int kRanks = 2;
  SharedCapture capture(kRanks);
  run_device_ranks({.ranks = kRanks}, [&](Communicator& comm) {
    DeviceUser user;
    float* const data = user.make<float>({2});
    const ReduceOp op =
        ops::user_op("add", [](const void* in, void* inout, std::size_t count, DataType, void*) {
          for (std::size_t i = 0; i < count; ++i) {
            static_cast<float*>(inout)[i] += static_cast<const float*>(in)[i];
          }
        });
    const auto call = [&] {
      comm.all_reduce(data, data, 1, DataType::kFloat32, op,
                      {.timeout = std::chrono::seconds(5), .stream = user.stream()});
    };
    std::string told;
    const CUgraph graph = capture.run(comm.rank(), user.stream(), [&] {
      try {
        call();
      } catch (const Error& error) {
        told = error.what();
      }
    });
    EXPECT_THAT(told, HasSubstr("CUDA graph"));
    if (comm.rank() == 0) {
      expect_ok(function<decltype(&::cuGraphDestroy)>("cuGraphDestroy")(graph), "cuGraphDestroy");
    }
    comm.barrier();
    call();
    user.finish();
    EXPECT_EQ(user.look(data, 1)[0], 4);
  });
}

TEST(DeviceCapture, OfOneRankAloneIsRefusedOnAllAndTheCommunicatorGoesOn) {
  std::barrier<> both(2);
  run_device_ranks({.ranks = 2}, [&](Communicator& comm) {
    DeviceUser user;
    float* const data = user.make<float>({1});
    const InStep step(both);
    if (comm.rank() == 1) {
      expect_ok(function<decltype(&::cuStreamBeginCapture)>("cuStreamBeginCapture")(
                    user.stream(), CU_STREAM_CAPTURE_MODE_RELAXED),
                "cuStreamBeginCapture");
    }
    const std::string told = failure_of_sum(comm, user, data);
    EXPECT_THAT(told, HasSubstr("into one graph"));
    if (comm.rank() == 1) {
      CUgraph graph = nullptr;
      expect_ok(
          function<decltype(&::cuStreamEndCapture)>("cuStreamEndCapture")(user.stream(), &graph),
          "cuStreamEndCapture");
      expect_ok(function<decltype(&::cuGraphDestroy)>("cuGraphDestroy")(graph), "cuGraphDestroy");
    }
    step.with_all();
    sum_in_stream(comm, user, data);
    user.finish();
    EXPECT_EQ(user.look(data, 1)[0], 2);
  });
}

}  // namespace
}  // namespace unisono::test
