// A rank gives a call up while the kernel of another process is in its buffers: they are its own
// again when the call has ended, and every stream goes on.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "cuda/device/leaked.h"
#include "tests/cuda/device_user.h"
#include "tests/cuda/kernel_twins.h"
#include "tests/cuda/odd_world.h"
#include "tests/fault/outcome_board.h"
#include "tests/support/rank_job.h"

namespace unisono::test {
namespace {

constexpr int kCallers = 3;
constexpr std::size_t kBytes = 1000;

struct Board {
  std::atomic<bool> is_inside{false}, may_move{false}, is_over{false}, has_given_up{false};
  std::atomic<int> enqueued{0}, finished{0};
};
Board* board = nullptr;

void translate(void* parameters, fake_cuda::Translator& translator) {
  auto& work = *static_cast<cuda::DeviceWork*>(parameters);
  work.abort = static_cast<const std::uint32_t*>(
      translator.at(work.abort, sizeof *work.abort, fake_cuda::Access::kRead));
  for (void*& pointer : work.pointers) {
    pointer = translator.at(pointer, pointer == nullptr ? 0 : kBytes, fake_cuda::Access::kWrite);
  }
}

// A kernel that takes its time between the question whether it is called off and the first byte.
void move_late(const void* parameters, fake_cuda::Dimensions, fake_cuda::Dimensions) {
  const auto& work = *static_cast<const cuda::DeviceWork*>(parameters);
  if (std::atomic_ref(const_cast<std::uint32_t&>(*work.abort)).load() != 0) return;
  board->is_inside = true;
  const bool may_move = eventually([] { return board->may_move.load(); });
  for (void* const pointer : work.pointers) {
    if (may_move && pointer != nullptr) std::memset(pointer, 0xEE, kBytes);
  }
  board->is_over = true;
}

// Every rank has called once, with a kernel of rank 0's as above.
void run_late(const std::function<void(Communicator&, DeviceUser&, std::byte*)>& body) {
  Shared<Board> shared;
  board = &*shared;
  for (const cuda::KernelBody& kernel : cuda::kernel_bodies()) {
    fake()->register_kernel({kernel.name.c_str(), sizeof(cuda::DeviceWork), translate, move_late});
  }
  spawn(kCallers,
        [&](Communicator& comm) {
          DeviceUser user;
          std::byte* const data = user.take(kBytes);
          Communicator doomed = comm.split(0, comm.rank());
          body(doomed, user, data);
          user.finish();
          comm.barrier();
        },
        {.as = SpawnOptions::As::kProcesses, .timeout = kCallTimeout, .devices = {0}});
}

void call(Communicator& comm, DeviceUser& user, std::byte* data) {
  comm.broadcast(data, kBytes, DataType::kUint8, 0, {.stream = user.stream()});
  ++board->enqueued;
}

bool all_have_called() { return board->enqueued == kCallers; }
bool is_in_the_buffers() { return all_have_called() && board->is_inside; }

// What waits for the streams asks each time whether the device is well.
std::uint64_t looks() { return fake()->calls("cuStreamQuery"); }

// Lets the kernel move when the rank waits for it, or has its buffer back without.
class LetMove {
 public:
  LetMove()
      : thread_([before = looks()] {
          const auto waits = [&] { return board->has_given_up || looks() > before + 20; };
          board->may_move = eventually(waits) && !board->has_given_up;
        }) {}
  ~LetMove() { thread_.join(); }

 private:
  std::thread thread_;
};

TEST(DeviceLateKernel, OfAPeerIsNotInTheBuffersOfACallThatHasEnded) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  run_late([](Communicator& comm, DeviceUser& user, std::byte* data) {
    call(comm, user, data);
    if (comm.rank() != 1) return await_failure(comm);
    require(eventually(is_in_the_buffers), "no kernel has begun");
    const TimePoint began = Clock::now();
    {
      const LetMove let_move;
      comm.abort("enough");
      board->has_given_up = true;
    }
    // It is not waited for any longer.
    const bool was_short = Clock::now() - began < device::kReleaseLimit;
    const std::vector<std::byte> mine(kBytes, std::byte{1});
    user.write(data, mine.data(), kBytes);
    board->may_move = true;
    require(eventually([] { return board->is_over.load(); }), "the kernel has not ended");
    require(!was_short || user.look(data, kBytes) == mine,
            "the kernel has written over the buffer");
  });
}

TEST(DeviceLateKernel, ThatDoesNotEndHoldsNobodyUp) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  run_late([](Communicator& comm, DeviceUser& user, std::byte* data) {
    call(comm, user, data);
    if (comm.rank() == 1) {
      require(eventually(is_in_the_buffers), "no kernel has begun");
      comm.abort("enough");
      user.finish();
      require(!board->is_over, "the kernel has ended");
      board->may_move = true;
    }
    await_failure(comm);
  });
}

// Rank 0 waits for rank 2's stream, and rank 1 for rank 0.
TEST(DeviceLateKernel, ThatHasNotBegunHoldsNobodyUp) {
  if (fake() == nullptr) GTEST_SKIP() << "needs the fake driver";
  run_late([](Communicator& comm, DeviceUser& user, std::byte* data) {
    if (comm.rank() == 2) {
      const HeldStream held(user.stream());
      call(comm, user, data);
      require(eventually([] { return board->finished == kCallers - 1; }), "streams are held up");
      return;
    }
    call(comm, user, data);
    if (comm.rank() == 1) {
      require(eventually(all_have_called), "a call is late");
      comm.abort("enough");
    }
    user.finish();
    ++board->finished;
    await_failure(comm);
    require(!board->is_inside, "a kernel has begun");
  });
}

}  // namespace
}  // namespace unisono::test
