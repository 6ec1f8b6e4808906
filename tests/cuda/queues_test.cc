// Streams that share a few hardware queues of finite depth, as those of a GPU do: what waits in one
// holds up what was enqueued behind it in another, and a full queue holds up the caller.
#include <gmock/gmock.h>

#include "tests/cuda/device_hosts.h"
#include "tests/cuda/odd_world.h"

namespace unisono::test {
namespace {

// Of a context, unless CUDA_DEVICE_MAX_CONNECTIONS says otherwise.
constexpr const char* kQueues = "8";

class DeviceQueues : public DeviceOddWorld {
 protected:
  const Setting queues_{"FAKE_CUDA_QUEUES", kQueues};
};

class OneDeviceQueue : public DeviceOddWorld {
 protected:
  const Setting queues_{"FAKE_CUDA_QUEUES", "1"};
  const Setting told_{"CUDA_DEVICE_MAX_CONNECTIONS", "1"};
};

// Ranks whose calls are staged, and ranks that reach each other's memory.
const std::vector<std::vector<int>> kStagedAndByKernels{{}, {0}};

std::string words_for(bool processes, const std::vector<int>& devices) {
  return std::string(processes ? "processes" : "threads") +
         (devices.empty() ? ", staged" : ", by kernels");
}

// One call after the other in the stream, and the caller looks at the end.
void sum_in_stream(Communicator& comm, std::size_t count, int calls) {
  DeviceUser user;
  float* const data = user.make(std::vector<float>(count, 1.0F));
  float expected = 1;
  const std::string failed = failure_of([&] {
    for (int call = 0; call < calls; ++call) {
      comm.all_reduce(data, data, count, kFloat, ops::sum,
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
    run_device_hosts({.hosts = {0, 0, 1, 1}}, [](Communicator& comm) {
      sum_in_stream(comm, (std::size_t{3} << 20) / 4, 3);
    });
  });
}

TEST_F(DeviceQueues, AreEnoughForProcesses) {
  for (const std::vector<int>& devices : kStagedAndByKernels) {
    SCOPED_TRACE(words_for(true, devices));
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
    for (const std::vector<int>& devices : kStagedAndByKernels) {
      SCOPED_TRACE(words_for(processes, devices));
      expect_success_alone([&] {
        run_device_ranks(
            {.ranks = 2, .processes = processes, .devices = devices}, [](Communicator& comm) {
              DeviceUser user;
              float* const data = user.make(std::vector<float>(10, 1.0F));
              std::vector<Request> requests;
              const std::string failed = failure_of([&] {
                for (int call = 0; call < kCalls; ++call) {
                  requests.push_back(
                      comm.all_reduce_async(data, data, 10, kFloat, ops::max,
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

// The copies of staged calls have that priority too.
TEST_F(OneDeviceQueue, TakesCallsInAStreamOfTheGreatestPriority) {
  for (const bool processes : {true, false}) {
    for (const std::vector<int>& devices : kStagedAndByKernels) {
      SCOPED_TRACE(words_for(processes, devices));
      expect_success_alone([&] {
        run_device_ranks(
            {.ranks = 2, .processes = processes, .devices = devices}, [](Communicator& comm) {
              DeviceUser user;
              const OwnStream urgent(cuda::kHighestStreamPriority);
              float* const data = user.make(std::vector<float>(1000, 1.0F));
              for (int call = 0; call < 3; ++call) {
                comm.all_reduce(data, data, 1000, kFloat, ops::sum,
                                {.timeout = kDeadline, .stream = urgent.get()});
              }
              driver()->StreamSynchronize(urgent.get());
              require(user.look(data, 1000) == std::vector<float>(1000, 8.0F), "a wrong sum");
            });
      });
    }
  }
}

// Every rank makes the calls in one order, each communicator's in a stream of its own.
TEST_F(OneDeviceQueue, TakesCallsOfSeveralCommunicators) {
  const Setting depth("FAKE_CUDA_QUEUE_DEPTH", "512");
  for (const bool processes : {true, false}) {
    for (const std::vector<int>& devices : kStagedAndByKernels) {
      SCOPED_TRACE(words_for(processes, devices));
      expect_success_alone([&] {
        run_device_ranks({.ranks = 2, .processes = processes, .devices = devices},
                         [](Communicator& comm) {
                           DeviceUser user;
                           std::vector<Communicator> comms;
                           std::vector<std::unique_ptr<OwnStream>> streams;
                           for (int i = 0; i < 3; ++i) {
                             comms.push_back(comm.split(0, comm.rank()));
                             streams.push_back(std::make_unique<OwnStream>(0));
                           }
                           float* const data = user.make(std::vector<float>(30, 1.0F));
                           std::vector<Request> requests;
                           for (std::size_t call = 0; call < 60; ++call) {
                             const std::size_t which = call % comms.size();
                             requests.push_back(comms[which].all_reduce_async(
                                 data + 10 * which, data + 10 * which, 10, kFloat, ops::max,
                                 {.timeout = kDeadline, .stream = streams[which]->get()}));
                           }
                           for (Request& request : requests) request.wait();
                           require(user.look(data, 30) == std::vector<float>(30, 1.0F), "wrong");
                         });
      });
    }
  }
}

enum class Way { kWithoutStreams, kOneStream, kAStreamEach };

void call_two_at_once(Communicator& comm, Way way) {
  DeviceUser user;
  const OwnStream other(0);
  Communicator a = comm.split(0, comm.rank());
  Communicator b = comm.split(0, comm.rank());
  float* const data = user.make(std::vector<float>(20, 1.0F));
  CallOptions first{.timeout = kDeadline}, second = first;
  if (way != Way::kWithoutStreams) first.stream = second.stream = user.stream();
  if (way == Way::kAStreamEach) second.stream = other.get();
  const auto call_on = [&](float* at, const CallOptions& options) {
    return Call{.collective = Collective::kAllReduce,
                .in = at,
                .out = at,
                .count = 10,
                .type = kFloat,
                .op = ops::max,
                .options = options};
  };
  for (int call = 0; call < 100; ++call) {
    if (way == Way::kWithoutStreams) {
      Request one = a.start(call_on(data, first));
      Request two = b.start(call_on(data + 10, second));
      one.wait();
      two.wait();
    } else {
      group(std::vector<MemberCall>{{&a, call_on(data, first)}, {&b, call_on(data + 10, second)}});
    }
  }
  user.finish();
  driver()->StreamSynchronize(other.get());
  require(a.status().ok() && b.status().ok(), a.status().message() + b.status().message());
}

// Their ranks meet in whichever order, and come into the streams in that of the calls.
TEST_F(OneDeviceQueue, TakesCallsOfTwoCommunicatorsAtOnce) {
  for (const Way way : {Way::kWithoutStreams, Way::kOneStream, Way::kAStreamEach}) {
    SCOPED_TRACE(static_cast<int>(way));
    expect_success_alone([&] {
      run_device_ranks({.ranks = 2, .processes = true},
                       [&](Communicator& comm) { call_two_at_once(comm, way); });
    });
  }
}

// A rank of the first process and one of the second, twice: the streams of a process share the
// queue, and nobody says which pair is first in it.
TEST_F(OneDeviceQueue, TakesCallsOfProcessesWithTwoRanksEach) {
  expect_success_alone([] {
    run_device_hosts({.hosts = {0, 0, 0, 0}, .processes = true, .ranks_of_a_process = 2},
                     [](Communicator& comm) {
                       Communicator pair = comm.split(comm.rank() % 2, comm.rank());
                       DeviceUser user;
                       float* const data = user.make(std::vector<float>(10, 1.0F));
                       for (int call = 0; call < 100; ++call) {
                         comm.barrier();  // both begin at once
                         pair.all_reduce(data, data, 10, kFloat, ops::max,
                                         {.timeout = kDeadline, .stream = user.stream()});
                       }
                       require(user.look(data, 10) == std::vector<float>(10, 1.0F), "wrong");
                     });
  });
}

// What rank 0 sets is a message to rank 1.
class MessageStore final : public Store {
 public:
  explicit MessageStore(Communicator& comm) : comm_(comm) {}
  void set(std::string_view, std::string_view value) override {
    std::string text(value);
    text.resize(kBytes);
    comm_.send(text.data(), kBytes, DataType::kUint8, 1, 0, {.timeout = kDeadline});
  }
  std::string get(std::string_view, std::chrono::milliseconds) override {
    std::string text(kBytes, '\0');
    comm_.receive(text.data(), kBytes, DataType::kUint8, 0, 0, {.timeout = kDeadline});
    return text.c_str();
  }

 private:
  static constexpr std::size_t kBytes = 4096;
  Communicator& comm_;
};

// Two jobs of the same processes, whose calls each rank makes in another order: nothing but the
// device knows of both. Kernels do them where enough queues are left.
void sum_in_two_jobs(bool by_kernels) {
  run_device_ranks({.ranks = 2, .processes = true}, [by_kernels](Communicator& comm) {
    DeviceUser users[2];
    float* const data[] = {users[0].make<float>({1}), users[1].make<float>({2})};
    const auto sum = [&](Communicator& of, std::size_t i) {
      return MemberCall{&of,
                        {.collective = Collective::kAllReduce,
                         .in = data[i],
                         .out = data[i],
                         .count = 1,
                         .type = kFloat,
                         .options = {.timeout = kDeadline, .stream = users[i].stream()}}};
    };
    const auto launches_of = [&](std::span<const MemberCall> calls) {
      const std::uint64_t before = fake()->counts().launches;
      group(calls);
      for (DeviceUser& user : users) user.finish();
      return fake()->counts().launches - before;
    };
    {
      MessageStore store(comm);
      Communicator other =
          join(store, "other", comm.rank(), 2, {.timeout = kDeadline, .device = 0});
      comm.barrier();
      MemberCall calls[] = {sum(comm, 0), sum(other, 1)};
      if (comm.rank() == 1) std::swap(calls[0], calls[1]);
      const std::uint64_t launches = launches_of(calls);
      require(comm.rank() > 0 || launches == (by_kernels ? 2 : 0),
              std::to_string(launches) + " kernels were launched");
      require(users[0].look(data[0], 1)[0] == 2 && users[1].look(data[1], 1)[0] == 4, "wrong");
      comm.barrier();
    }
    // The device is the first job's again, and so are its kernels.
    comm.barrier();
    MemberCall last[] = {sum(comm, 0)};
    const std::uint64_t launches = launches_of(last);
    require(users[0].look(data[0], 1)[0] == 4, "wrong");
    require(comm.rank() > 0 || launches > 0, "no kernel was launched");
  });
}

TEST_F(OneDeviceQueue, TakesCallsOfTwoJobsInOneProcess) {
  expect_success_alone([] { sum_in_two_jobs(false); });
}

TEST_F(DeviceQueues, AreEnoughForTheKernelsOfTwoJobsInOneProcess) {
  expect_success_alone([] { sum_in_two_jobs(true); });
}

// With a device each the two ranks of a process share no queue, and kernels serve both pairs.
TEST_F(OneDeviceQueue, LeavesRanksOfAProcessWithADeviceEachTheirKernels) {
  expect_success_alone([] {
    run_device_hosts(
        {.hosts = {0, 0, 0, 0}, .processes = true, .ranks_of_a_process = 2, .devices = {0, 1}},
        [](Communicator& comm) {
          Communicator pair = comm.split(comm.rank() % 2, comm.rank());
          DeviceUser user(comm.rank() % 2);
          float* const data = user.make(std::vector<float>(10, 1.0F));
          pair.all_reduce(data, data, 10, kFloat, ops::sum,
                          {.timeout = kDeadline, .stream = user.stream()});
          require(user.look(data, 10) == std::vector<float>(10, 2.0F), "wrong");
          require(comm.rank() > 1 || fake()->counts().launches > 0, "no kernel was launched");
          comm.barrier();
        });
  });
}

// ... and calls of all of them are staged.
TEST_F(OneDeviceQueue, TakesCallsOfProcessesWithTwoDevicesEach) {
  expect_success_alone([] {
    run_device_hosts(
        {.hosts = {0, 0, 0, 0}, .processes = true, .ranks_of_a_process = 2, .devices = {0, 1}},
        [](Communicator& comm) {
          DeviceUser user(comm.rank() % 2);
          float* const data = user.make<float>({1, static_cast<float>(comm.rank())});
          for (float sum = 4; sum < 100; sum *= 4) {
            comm.all_reduce(data, data, 2, kFloat, ops::sum,
                            {.timeout = kDeadline, .stream = user.stream()});
            require(user.look(data, 2) == std::vector<float>{sum, sum / 4 * 6}, "a wrong sum");
          }
          comm.barrier();
        });
  });
}

// What a driver frees waits for all streams: a communicator is closed while one waits for a peer.
TEST_F(DeviceQueues, DoNotHoldUpACommunicatorThatIsClosed) {
  expect_success_alone([] {
    run_device_ranks({.ranks = 2, .processes = true}, [](Communicator& comm) {
      DeviceUser user;
      float* const data = user.make(std::vector<float>(10, 1.0F));
      {
        Communicator alone = comm.split(comm.rank(), 0);
        alone.all_reduce(data, data, 10, kFloat, ops::sum,
                         {.timeout = kDeadline, .stream = user.stream()});
        user.finish();
        const CallOptions in_stream{.timeout = kDeadline, .stream = user.stream()};
        if (comm.rank() == 0) comm.receive(data, 10, kFloat, 1, 7, in_stream);
      }
      // Only now is there anything to receive.
      comm.barrier({.timeout = kDeadline});
      if (comm.rank() == 1) comm.send(data, 10, kFloat, 0, 7, {.timeout = kDeadline});
      require(user.look(data, 10) == std::vector<float>(10, 1.0F), "wrong");
    });
  });
}

// A driver may wait for all streams before it page-locks memory: the call that one of them waits
// for goes on meanwhile.
TEST_F(DeviceQueues, GoOnWhileMemoryIsPageLocked) {
  constexpr std::size_t kMany = std::size_t{2} << 20;
  const Setting waits("FAKE_CUDA_PAGE_LOCKING", "waits");
  expect_success_alone([] {
    run_device_ranks({.ranks = 2, .processes = true}, [](Communicator& comm) {
      DeviceUser user;
      float* const few = user.make(std::vector<float>(10, 1.0F));
      float* const many = user.make(std::vector<float>(kMany, 1.0F));
      const CallOptions without_stream{.timeout = kDeadline};
      const CallOptions in_stream{.timeout = kDeadline, .stream = user.stream()};
      const auto send = [&](float* data, std::size_t count, int tag) {
        comm.send(data, count, kFloat, 1 - comm.rank(), tag, without_stream);
      };
      const auto receive = [&](float* data, std::size_t count, int tag) {
        return comm.receive_async(data, count, kFloat, 1 - comm.rank(), tag, without_stream);
      };
      // Short blocks are there before anything waits, long ones are not.
      if (comm.rank() == 1) send(few, 10, 6);
      if (comm.rank() == 0) receive(few, 10, 6).wait();
      Request long_one;
      if (comm.rank() == 0) {
        comm.receive(few, 10, kFloat, 1, 7, in_stream);
        long_one = receive(many, kMany, 8);
      }
      comm.barrier(without_stream);
      if (comm.rank() == 1) {
        send(few, 10, 7);
        send(many, kMany, 8);
      } else {
        long_one.wait();
      }
      user.finish();
      require(user.look(few, 10) == std::vector<float>(10, 1.0F), "wrong");
      require(user.look(many, kMany) == std::vector<float>(kMany, 1.0F), "wrong");
    });
  });
}

// ... and so does the very call that has closed its gate: its blocks, or the pages of flags of the
// communicators inside, are the first of their kind.
TEST_F(DeviceQueues, GoOnWhileTheMemoryOfTheirOwnCallsIsPageLocked) {
  const Setting waits("FAKE_CUDA_PAGE_LOCKING", "waits");
  expect_success_alone([] {
    run_device_ranks({.ranks = 2, .processes = true, .devices = {}}, [](Communicator& comm) {
      sum_in_stream(comm, 1000, 3);
      sum_in_stream(comm, (std::size_t{9} << 20) / sizeof(float), 3);  // parts of two lengths
    });
  });
  expect_success_alone([] {
    run_device_hosts({.hosts = {0, 0, 1, 1}, .processes = true}, [](Communicator& comm) {
      sum_in_stream(comm, (std::size_t{3} << 20) / sizeof(float), 3);
    });
  });
}

// A call of a group that turns out to be staged once the ranks have exchanged what they have.
TEST_F(DeviceQueues, WaitForACallOfAGroupWhoseCallerGoesOn) {
  expect_success_alone([] {
    run_device_ranks({.ranks = 2, .processes = true}, [](Communicator& comm) {
      DeviceUser user;
      Communicator beside = comm.split(0, comm.rank());
      std::vector<float> host(10, 1.0F);
      float* const data = comm.rank() == 1 ? host.data() : user.make(host);
      const Call call{.collective = Collective::kAllReduce,
                      .in = data,
                      .out = data,
                      .count = 10,
                      .type = kFloat,
                      .options = {.timeout = kDeadline, .stream = user.stream()}};
      comm.run(call);  // what is registered once is there now
      user.finish();
      std::unique_ptr<HeldStream> hold;
      if (comm.rank() == 1) hold = std::make_unique<HeldStream>(user.stream());
      const Call barrier{.collective = Collective::kBarrier, .options = {.timeout = kDeadline}};
      group(std::vector<MemberCall>{{&comm, call}, {&beside, barrier}});
      beside.run(barrier);
      hold.reset();
      user.finish();
      const std::vector<float> sums = comm.rank() == 1 ? host : user.look(data, 10);
      require(sums == std::vector<float>(10, 4.0F), "a wrong sum");
    });
  });
}

TEST_F(DeviceQueues, WaitAtGatesUnlessTheSettingForbidsThem) {
  for (const bool gates : {true, false}) {
    SCOPED_TRACE(gates ? "on" : "off");
    const Setting setting("UNISONO_CUDA_GATES", gates ? "on" : "off");
    expect_success_alone([&] {
      run_device_ranks({.ranks = 2, .processes = true, .devices = {}}, [&](Communicator& comm) {
        sum_in_stream(comm, 1000, 1);  // opens the device, which tries to wait
        const std::uint64_t before = fake()->calls("cuStreamBatchMemOp");
        sum_in_stream(comm, 1000, 3);
        require((fake()->calls("cuStreamBatchMemOp") > before) == gates, "another setting");
      });
    });
  }
}

// Half of the queues are left for others: the caller of a call in one stream more waits itself.
TEST_F(DeviceQueues, HaveGatesInHalfAsManyStreamsAsThereAreQueues) {
  constexpr std::size_t kStreams = 4;
  expect_success_alone([] {
    run_device_ranks({.ranks = 2, .processes = true, .devices = {}}, [](Communicator& comm) {
      DeviceUser user;
      float* const data = user.make(std::vector<float>(kStreams + 1, 1.0F));
      std::vector<std::unique_ptr<OwnStream>> streams;
      std::vector<std::unique_ptr<HeldStream>> holds;
      const auto sum = [&](std::size_t i) {
        comm.all_reduce(data + i, data + i, 1, kFloat, ops::sum,
                        {.timeout = kDeadline, .stream = streams[i]->get()});
      };
      for (std::size_t i = 0; i <= kStreams; ++i) {
        streams.push_back(std::make_unique<OwnStream>(0));
        holds.push_back(std::make_unique<HeldStream>(streams.back()->get()));
      }
      for (std::size_t i = 0; i < kStreams; ++i) sum(i);
      std::atomic<bool> returned = false;
      std::string failed;
      std::thread last([&] {
        failed = failure_of([&] { sum(kStreams); });
        returned = true;
      });
      std::this_thread::sleep_for(kBusyFor);
      require(!returned, "one stream more waits");
      holds.clear();
      last.join();
      require(failed.empty(), failed);
      for (const auto& stream : streams) driver()->StreamSynchronize(stream->get());
      require(user.look(data, kStreams + 1) == std::vector<float>(kStreams + 1, 2.0F), "wrong");
    });
  });
}

// The kernels and the streams of copies are the process's, whoever of its ranks came first.
TEST_F(DeviceQueues, OutliveTheRankThatMadeThem) {
  expect_success_alone([] {
    for (const std::vector<int>& devices : kStagedAndByKernels) {
      run_device_ranks({.ranks = 3, .devices = devices}, [](Communicator& comm) {
        Communicator pair = comm.split(comm.rank() == 0 ? 0 : 1, comm.rank());
        sum_in_stream(comm, 1000, 1);
        if (comm.rank() == 0) return comm.close();
        sum_in_stream(pair, 1000, 3);
      });
    }
  });
}

}  // namespace
}  // namespace unisono::test
