// Streams that share a few hardware queues of finite depth, as those of a GPU do: what waits in one
// holds up what was enqueued behind it in another, and a full queue holds up the caller.
#include <gmock/gmock.h>

#include "tests/cuda/host_job.h"
#include "tests/cuda/odd_world.h"

namespace unisono::test {
namespace {

// Of a context, unless CUDA_DEVICE_MAX_CONNECTIONS says otherwise.
constexpr const char* kQueues = "8";

class DeviceQueues : public DeviceOddWorld {
 protected:
  const Setting queues_{"FAKE_CUDA_QUEUES", kQueues};
};

// One call after the other in the stream, and the caller looks at the end.
void sum_in_stream(Communicator& comm, std::size_t count, int calls) {
  DeviceUser user;
  float* const data = user.make(std::vector<float>(count, 1.0F));
  float expected = 1;
  const std::string failed = failure_of([&] {
    for (int call = 0; call < calls; ++call) {
      comm.all_reduce(data, data, count, kFloat, sum,
                      {.timeout = kDeadline, .stream = user.stream()});
    }
  });
  require(failed.empty(), failed);
  for (int call = 0; call < calls; ++call) expected *= static_cast<float>(comm.size());
  user.finish();
  require(user.look(data, count) == std::vector<float>(count, expected), "a wrong sum");
}

// Seventeen are more than share device memory.
TEST_F(DeviceQueues, AreEnoughForManyThreadsWhoseCallsAreStaged) {
  expect_success_alone([] {
    run_device_ranks({.ranks = 17}, [](Communicator& comm) { sum_in_stream(comm, 1000, 3); });
  });
}

TEST_F(DeviceQueues, AreEnoughForThreadsOfSeveralHosts) {
  expect_success_alone([] {
    run_hosts({.hosts = {0, 0, 1, 1}},
              [](Communicator& comm) { sum_in_stream(comm, (std::size_t{3} << 20) / 4, 3); });
  });
}

TEST_F(DeviceQueues, AreEnoughForProcesses) {
  for (const std::vector<int>& devices : {std::vector<int>{}, std::vector<int>{0}}) {
    SCOPED_TRACE(devices.empty() ? "staged" : "by kernels");
    expect_success_alone([&] {
      run_device_ranks({.ranks = 3, .processes = true, .devices = devices},
                       [](Communicator& comm) { sum_in_stream(comm, 1000, 3); });
    });
  }
}

// A rank that runs ahead of its stream waits before the driver would make it wait, which it would
// with what the peers need from it.
TEST_F(DeviceQueues, AreNeverFilledByCallsThatWait) {
  const Setting depth("FAKE_CUDA_QUEUE_DEPTH", "512");
  constexpr int kCalls = 300;
  for (const bool processes : {true, false}) {
    for (const std::vector<int>& devices : {std::vector<int>{}, std::vector<int>{0}}) {
      SCOPED_TRACE(std::string(processes ? "processes" : "threads") +
                   (devices.empty() ? ", staged" : ", by kernels"));
      expect_success_alone([&] {
        run_device_ranks(
            {.ranks = 2, .processes = processes, .devices = devices}, [](Communicator& comm) {
              DeviceUser user;
              float* const data = user.make(std::vector<float>(10, 1.0F));
              std::vector<Request> requests;
              const std::string failed = failure_of([&] {
                for (int call = 0; call < kCalls; ++call) {
                  requests.push_back(
                      comm.all_reduce_async(data, data, 10, kFloat, max,
                                            {.timeout = kDeadline, .stream = user.stream()}));
                }
                for (Request& request : requests) request.wait();
              });
              require(failed.empty(), failed);
              require(user.look(data, 10) == std::vector<float>(10, 1.0F), "wrong");
            });
      });
    }
  }
}

}  // namespace
}  // namespace unisono::test
