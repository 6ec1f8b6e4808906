// What the driver may wait for streams in is done without the engine's lock: a stream that waits at
// a gate goes on by what the engine does, so whoever waits for that stream must not have it.
#include <gmock/gmock.h>

#include <thread>

#include "tests/cuda/odd_world.h"

namespace unisono::test {
namespace {

constexpr std::size_t kFew = 10;

class EngineLock : public DeviceOddWorld {
 protected:
  const Setting queues_{"FAKE_CUDA_QUEUES", "8"};
  const Setting depth_{"FAKE_CUDA_QUEUE_DEPTH", "512"};
};

void await_call_of(const char* function, std::uint64_t before) {
  while (fake()->calls(function) == before) std::this_thread::yield();
}

// The first rank's stream waits at a gate for what the other one sends after `meanwhile`, which
// both go through.
void go_on_beside_gate(Communicator& comm, DeviceUser& user,
                       const std::function<void()>& meanwhile) {
  float* const data = user.make(std::vector<float>(kFew, static_cast<float>(comm.rank())));
  const CallOptions in_stream{.timeout = kDeadline, .stream = user.stream()};
  const auto exchange = [&](int tag, const CallOptions& options) {
    if (comm.rank() == 0) {
      comm.receive(data, kFew, kFloat, 1, tag, options);
    } else {
      comm.send(data, kFew, kFloat, 0, tag, options);
    }
  };
  exchange(6, {.timeout = kDeadline});  // what is page-locked for it is there afterwards
  if (comm.rank() == 0) exchange(7, in_stream);
  meanwhile();
  if (comm.rank() == 1) exchange(7, {.timeout = kDeadline});
  user.finish();
  require(user.look(data, kFew) == std::vector<float>(kFew, 1.0F), "a wrong message");
}

void sum(Communicator& comm, float* data, CUstream stream) {
  comm.all_reduce(data, data, kFew, kFloat, ops::max, {.timeout = kDeadline, .stream = stream});
}

TEST_F(EngineLock, IsNotHeldWhileMemoryIsReleased) {
  const Setting plain("FAKE_CUDA_FILE_HANDLES", "off");
  expect_success_alone([] {
    run_device_ranks({.ranks = 2, .processes = true}, [](Communicator& comm) {
      DeviceUser user;
      const OwnStream other(0);
      float* const data = user.make(std::vector<float>(kFew, 1.0F));
      void* const own = allocate(comm, 1000, MemoryKind::kCuda);
      std::thread releasing;
      go_on_beside_gate(comm, user, [&] {
        if (comm.rank() == 0) {
          const std::uint64_t before = fake()->calls("cuMemFree");
          releasing = std::thread([&] { release(comm, own); });
          await_call_of("cuMemFree", before);
        }
        sum(comm, data, other.get());
      });
      if (releasing.joinable()) releasing.join();
      if (comm.rank() == 1) release(comm, own);
    });
  });
}

// The pages of flags of one that is closed.
TEST_F(EngineLock, IsNotHeldWhileACommunicatorOfProcessesIsClosed) {
  expect_success_alone([] {
    run_device_ranks({.ranks = 2, .processes = true}, [](Communicator& comm) {
      DeviceUser user;
      float* const data = user.make(std::vector<float>(kFew, 1.0F));
      std::vector<Communicator> others;
      for (int i = 0; i < 20; ++i) {
        others.push_back(comm.split(0, comm.rank()));
        sum(others.back(), data, user.stream());
      }
      user.finish();
      go_on_beside_gate(comm, user, [&] {
        others.clear();
        comm.barrier({.timeout = kDeadline});
      });
    });
  });
}

TEST_F(EngineLock, IsNotHeldWhilePagesOfFlagsAreRegistered) {
  const Setting waits("FAKE_CUDA_PAGE_LOCKING", "waits");
  expect_success_alone([] {
    run_device_ranks({.ranks = 2, .processes = true}, [](Communicator& comm) {
      DeviceUser user;
      const OwnStream other(0);
      float* const data = user.make(std::vector<float>(kFew, 1.0F));
      Communicator pair = comm.split(0, comm.rank());
      // The first rank's comes into its stream when the gate has been opened.
      go_on_beside_gate(comm, user, [&] { sum(pair, data, other.get()); });
    });
  });
}

// The first rank has mapped memory of the other's that is other memory now.
TEST_F(EngineLock, IsNotHeldWhileMemoryOfPeersIsUnmapped) {
  const Setting reuse("FAKE_CUDA_ADDRESSES", "reuse");
  expect_success_alone([] {
    run_device_ranks({.ranks = 2, .processes = true}, [](Communicator& comm) {
      DeviceUser user;
      const OwnStream other(0);
      CUdeviceptr memory = 0;
      const auto make = [&] {
        require(driver()->MemAlloc(&memory, 4096) == CUDA_SUCCESS, "no memory");
        return reinterpret_cast<float*>(memory);
      };
      sum(comm, make(), other.get());
      require(driver()->StreamSynchronize(other.get()) == CUDA_SUCCESS, "no sum");
      if (comm.rank() == 1) {
        const CUdeviceptr before = memory;
        require(driver()->MemFree(memory) == CUDA_SUCCESS, "not freed");
        make();
        require(memory == before, "other addresses");
      }
      const std::uint64_t closed = fake()->calls("cuIpcCloseMemHandle");
      // It is mapped when the gate has been opened.
      go_on_beside_gate(comm, user,
                        [&] { sum(comm, reinterpret_cast<float*>(memory), other.get()); });
      if (comm.rank() == 0) await_call_of("cuIpcCloseMemHandle", closed);
      require(driver()->StreamSynchronize(other.get()) == CUDA_SUCCESS, "no second sum");
      comm.barrier({.timeout = kDeadline});
      require(driver()->MemFree(memory) == CUDA_SUCCESS, "not freed");
    });
  });
}

// Of the device that the first buffer names.
TEST_F(EngineLock, IsNotHeldWhileADeviceIsOpened) {
  const Setting waits("FAKE_CUDA_PAGE_LOCKING", "waits");
  expect_success_alone([] {
    run_device_ranks({.ranks = 2, .processes = true, .devices = {}}, [](Communicator& comm) {
      Communicator on_host = comm.split(0, comm.rank());
      DeviceUser user;
      const OwnStream busy(0);
      float* const data = user.make(std::vector<float>(kFew, 1.0F));
      const auto sum_here = [&] {
        comm.all_reduce(data, data, kFew, kFloat, ops::sum, {.timeout = kDeadline});
      };
      if (comm.rank() == 1) {
        on_host.barrier({.timeout = kDeadline});
        sum_here();
      } else {
        HeldStream held(busy.get());
        CUevent event = nullptr;
        require(driver()->EventCreate(&event, CU_EVENT_DISABLE_TIMING) == CUDA_SUCCESS &&
                    driver()->EventRecord(event, busy.get()) == CUDA_SUCCESS,
                "no event");
        const std::uint64_t before = fake()->calls("cuMemHostAlloc");
        std::thread opening(sum_here);
        await_call_of("cuMemHostAlloc", before);
        on_host.barrier({.timeout = kDeadline});
        held.let_go();
        opening.join();
        driver()->EventDestroy(event);
      }
      require(user.look(data, kFew) == std::vector<float>(kFew, 2.0F), "a wrong sum");
    });
  });
}

// A sum in a stream of the copies' own priority waits there for the peer, whose stream waits for a
// message: that is copied in a queue in which nothing waits.
TEST_F(EngineLock, AndCopiesAreNotHeldUpByWaitsForProcesses) {
  const Setting queues("FAKE_CUDA_QUEUES", "8");
  expect_success_alone([] {
    run_device_ranks({.ranks = 2, .processes = true}, [](Communicator& comm) {
      DeviceUser user;
      const OwnStream urgent(cuda::kHighestStreamPriority);
      Communicator pair = comm.split(0, comm.rank());
      float* const data = user.make(std::vector<float>(2 * kFew, 1.0F));
      const CallOptions in_stream{.timeout = kDeadline, .stream = user.stream()};
      if (comm.rank() == 1) {
        comm.receive(data, kFew, kFloat, 0, 7, in_stream);
        sum(pair, data + kFew, user.stream());
      } else {
        HeldStream held(user.stream());
        comm.send(data, kFew, kFloat, 1, 7, in_stream);
        const std::uint64_t waits = fake()->calls("cuStreamBatchMemOp");
        const std::uint64_t copies = fake()->calls("cuMemcpyAsync");
        std::thread let_go([&] {
          while (fake()->calls("cuStreamBatchMemOp") == waits &&
                 fake()->calls("cuMemcpyAsync") == copies) {
            std::this_thread::yield();
          }
          held.let_go();
        });
        const std::string failed = failure_of([&] { sum(pair, data + kFew, urgent.get()); });
        let_go.join();
        require(failed.empty(), failed);
      }
      user.finish();
      driver()->StreamSynchronize(urgent.get());
      for (const Communicator* each : {&comm, &pair}) {
        require(each->status().ok(), each->status().message());
      }
      require(user.look(data, 2 * kFew) == std::vector<float>(2 * kFew, 1.0F), "wrong");
    });
  });
}

}  // namespace
}  // namespace unisono::test
