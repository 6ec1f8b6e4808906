// register_memory(): what it says, and calls on memory that is registered. That peers do map it is
// tested beside the shared segment (unit/registered_memory_test.cc).
#include "unisono/registered_memory.h"

#include <gmock/gmock.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <thread>

#include "tests/support/memfd_memory.h"
#include "tests/support/rank_job.h"

namespace unisono::test {
namespace {

using testing::HasSubstr;

const auto kPage = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
constexpr std::size_t kCount = 300'000;  // large for every collective
constexpr std::size_t kBytes = kCount * sizeof(float);

// A child cannot fail the parent's test: it throws.
void require(bool holds, const std::string& claim) {
  if (!holds) throw std::runtime_error(claim);
}

void require_mapped(const RegisteredMemory& memory) {
  require(memory.peer_access() == PeerAccess::kMapped && memory.reason().empty(),
          "not mapped: " + memory.reason());
}

void require_refused(const RegisteredMemory& memory, PeerAccess access, const std::string& why) {
  require(memory.peer_access() == access, "another access: " + memory.reason());
  require(memory.reason().find(why) != std::string::npos, memory.reason());
}

void require_all(const float* data, std::size_t count, float expected, const char* what) {
  const float* const wrong =
      std::find_if(data, data + count, [expected](float value) { return value != expected; });
  if (wrong == data + count) return;
  throw std::runtime_error(std::string(what) + " is wrong at " + std::to_string(wrong - data) +
                           ": " + std::to_string(*wrong));
}

// All-reduce, all-gather and messages, in this round's own memory.
void run_a_round(Communicator& comm, int round) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  MemfdMemory in(kBytes, kPage), out(ranks * kBytes);
  RegisteredMemory registered_in = register_memory(comm, in.data(), kBytes, {in.fd(), kPage});
  const RegisteredMemory registered_out(comm, out.data(), ranks * kBytes, {out.fd(), 0});
  in.close();
  require_mapped(registered_in);
  require_mapped(registered_out);
  const auto mine = static_cast<float>(comm.rank() + 10 * round);
  const auto sum =
      static_cast<float>(comm.size() * (comm.size() - 1) / 2 + 10 * round * comm.size());
  std::fill_n(in.as<float>(), kCount, mine);
  comm.all_reduce(in.data(), out.data(), kCount, DataType::kFloat32, ops::sum);
  require_all(out.as<float>(), kCount, sum, "the sum");
  comm.all_gather(in.data(), out.data(), kCount, DataType::kFloat32);
  for (std::size_t i = 0; i < ranks; ++i) {
    require_all(out.as<float>() + i * kCount, kCount, static_cast<float>(i) + 10.0F * round,
                "what was gathered");
  }
  const Rank next = (comm.rank() + 1) % comm.size();
  const Rank before = (comm.rank() + comm.size() - 1) % comm.size();
  comm.send_receive(in.data(), kCount, next, out.data(), kCount, before, DataType::kFloat32);
  require_all(out.as<float>(), kCount, static_cast<float>(before + 10 * round), "a message");
  comm.barrier();
}

TEST(RegisteredMemory, OfProcessesIsCarriedByEveryCall) {
  for (const int ranks : {2, 3}) {
    spawn_processes(ranks, "shm", [](Communicator& comm) {
      for (int round = 0; round < 5; ++round) run_a_round(comm, round);
    });
  }
}

TEST(RegisteredMemory, OfThreadsIsReadInPlaceWithoutADescriptor) {
  run_ranks(3, "shm", [](Communicator& comm) {
    for (int round = 0; round < 3; ++round) run_a_round(comm, round);
    std::vector<float> plain(100);
    require_mapped(register_memory(comm, plain.data(), 400));
  });
}

TEST(RegisteredMemory, SaysWhyItIsNotMapped) {
  spawn_processes(2, "shm", [](Communicator& comm) {
    std::vector<float> plain(kCount);
    require_refused(register_memory(comm, plain.data(), kBytes), PeerAccess::kCopied,
                    "no descriptor was given");
    const MemfdMemory unsealed(kBytes, 0, kUnsealed);
    require_refused(register_memory(comm, unsealed.data(), kBytes, {unsealed.fd()}),
                    PeerAccess::kCopied, "F_SEAL_SHRINK");
    const MemfdMemory own(kBytes, 0, kSealed, MAP_PRIVATE);
    const RegisteredMemory registered(comm, own.data(), kBytes, {own.fd()});
    require_refused(registered, PeerAccess::kCopied, "MAP_SHARED");
    std::fill_n(own.as<float>(), kCount, 1.0F);  // not what is in the file
    comm.all_reduce(own.data(), plain.data(), kCount, DataType::kFloat32, ops::sum);
    require_all(plain.data(), kCount, 2.0F, "a sum of private memory");
    SharedBuffer<float> shared(comm, kCount);
    require_mapped(register_memory(comm, shared.data(), kBytes));
    comm.barrier();
  });
}

TEST(RegisteredMemory, FollowsWhatIsSetAboutAccess) {
  const auto with = [](const char* access, const std::function<void(Communicator&)>& body) {
    setenv("UNISONO_ACCESS", access, 1);
    spawn_processes(2, "shm", body);
    unsetenv("UNISONO_ACCESS");
  };
  with("window", [](Communicator& comm) {
    const MemfdMemory memory(kBytes);
    require_refused(register_memory(comm, memory.data(), kBytes, {memory.fd()}),
                    PeerAccess::kCopied, "UNISONO_ACCESS=window");
    comm.barrier();
  });
  with("mapped", [](Communicator& comm) { run_a_round(comm, 1); });
  with("single_copy", [](Communicator& comm) {
    run_a_round(comm, 1);
    std::vector<float> plain(kCount);
    const RegisteredMemory registered(comm, plain.data(), kBytes);
    // The system may refuse it.
    require(registered.peer_access() != PeerAccess::kMapped, "mapped without a descriptor");
    require(registered.reason() == "no descriptor was given", registered.reason());
  });
}

TEST(RegisteredMemory, IsNotMappedWhereRanksShareNoMemory) {
  spawn_processes(2, "tcp", [](Communicator& comm) {
    const MemfdMemory memory(kBytes);
    const RegisteredMemory registered(comm, memory.data(), kBytes, {memory.fd()});
    require_refused(registered, PeerAccess::kCopied, "shares memory with no other");
    require(!registered.pinned(), "pinned without an adapter");
    require(registered.pinned_reason().find("RDMA") != std::string::npos,
            registered.pinned_reason());
    std::fill_n(memory.as<float>(), kCount, 2.0F);
    comm.all_reduce(memory.data(), memory.data(), kCount, DataType::kFloat32, ops::sum);
    require_all(memory.as<float>(), kCount, 4.0F, "a sum over TCP");
  });
}

// As programs do that give up root's rights.
void become_unreadable() {
  constexpr uid_t kSomebody = 54'321;
  require(geteuid() != 0 || setresuid(kSomebody, kSomebody, kSomebody) == 0, "is root");
  require(prctl(PR_SET_DUMPABLE, 0) == 0, "is dumpable");
}

TEST(RegisteredMemory, IsNotMappedOnceOthersMayNotOpenIt) {
  spawn_processes(2, "shm", [](Communicator& comm) {
    const MemfdMemory early(kBytes), late(kBytes);
    const RegisteredMemory registered(comm, early.data(), kBytes, {early.fd()});
    require_mapped(registered);
    become_unreadable();
    comm.barrier();
    require_refused(register_memory(comm, late.data(), kBytes, {late.fd()}), PeerAccess::kCopied,
                    "not dumpable");
    std::fill_n(early.as<float>(), kCount, 1.0F);
    comm.all_reduce(early.data(), early.data(), kCount, DataType::kFloat32, ops::sum);
    require_all(early.as<float>(), kCount, 2.0F, "a sum of memory that was registered before");
  });
}

// Calls look ranges up while others come and go.
TEST(RegisteredMemory, ComesAndGoesOnAnotherThreadMeanwhile) {
  spawn_processes(2, "shm", [](Communicator& comm) {
    Communicator beside = comm.duplicate();
    const MemfdMemory memory(kBytes), other(2 * kBytes);
    const RegisteredMemory registered(comm, memory.data(), kBytes, {memory.fd()});
    std::atomic<bool> over{false};
    std::thread registers([&] {
      while (!over) register_memory(beside, other.data(), 2 * kBytes, {other.fd()});
    });
    for (int round = 0; round < 50; ++round) {
      std::fill_n(memory.as<float>(), kCount, static_cast<float>(round));
      comm.all_reduce(memory.data(), memory.data(), kCount, DataType::kFloat32, ops::sum);
      require_all(memory.as<float>(), kCount, static_cast<float>(2 * round), "a sum");
    }
    over = true;
    registers.join();
    comm.barrier();
  });
}

class OneRank : public testing::Test {
 protected:
  Status refusal(void* data, std::size_t bytes, MemorySource source = {}) {
    try {
      const RegisteredMemory registered(comm_, data, bytes, source);
      return Status();
    } catch (const Error& error) {
      EXPECT_EQ(error.operation(), "register_memory");
      return error.status();
    }
  }
  void expect_invalid(const Status& status, const char* words) {
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(words));
  }

  Communicator comm_ = init({.rendezvous = "alone://"});
};

TEST_F(OneRank, IsToldWhatIsWrong) {
  const MemfdMemory memory(4 * kPage), other(4 * kPage);
  expect_invalid(refusal(nullptr, 100), "not null");
  expect_invalid(refusal(memory.data(), 0), "0 bytes");
  expect_invalid(refusal(memory.data(), (std::size_t{1} << 47) + 1), "140737488355328");
  expect_invalid(refusal(reinterpret_cast<void*>(~std::uintptr_t{4}), 10), "cannot be registered");
  expect_invalid(refusal(memory.data(), 4 * kPage, {memory.fd(), 1 << 20}), "the file ends at");
  expect_invalid(refusal(memory.data(), kPage, {memory.fd(), 8}), "different places of a page");
  expect_invalid(refusal(memory.data(), kPage, {memory.fd(), kPage}), "not the same memory");
  expect_invalid(refusal(memory.data(), kPage, {other.fd(), 0}), "not the same memory");
  expect_invalid(refusal(memory.data(), kPage, {9999, 0}), "no open descriptor");
  EXPECT_TRUE(refusal(memory.data(), 4 * kPage, {memory.fd(), 0})) << "what was refused is kept";
  Communicator none;
  EXPECT_THROW(register_memory(none, memory.data(), kPage), Error);
}

TEST_F(OneRank, RegistersEachByteOnce) {
  std::vector<std::byte> memory(1000);
  std::optional<RegisteredMemory> held(std::in_place, comm_, memory.data() + 300, 100);
  for (const auto& [offset, bytes] : {std::pair<int, std::size_t>{300, 100},
                                      {350, 10},
                                      {399, 1},
                                      {300, 1},
                                      {200, 101},
                                      {0, 1000},
                                      {399, 100}}) {
    expect_invalid(refusal(memory.data() + offset, bytes), "overlap the registered 100 bytes");
  }
  EXPECT_TRUE(refusal(memory.data() + 200, 100));
  EXPECT_TRUE(refusal(memory.data() + 400, 100));
  RegisteredMemory moved = std::move(*held);
  held.reset();
  EXPECT_FALSE(refusal(memory.data(), 1000));
  moved = RegisteredMemory(comm_, memory.data(), 100);
  EXPECT_TRUE(refusal(memory.data() + 300, 100)) << "replaced by another";
}

TEST_F(OneRank, HasABoundedNumberOfThem) {
  std::vector<std::byte> memory(100);
  std::vector<RegisteredMemory> held;
  for (int i = 0; i < 64; ++i) held.emplace_back(comm_, memory.data() + i, 1);
  const Status status = refusal(memory.data() + 64, 1);
  EXPECT_EQ(status.code(), ErrorCode::kOutOfResources);
  EXPECT_THAT(status.message(), HasSubstr("64 registrations"));
  held.pop_back();
  EXPECT_TRUE(refusal(memory.data() + 64, 1));
}

TEST(RegisteredMemory, MayOutliveItsCommunicator) {
  spawn_processes(2, "shm", [](Communicator& comm) {
    const MemfdMemory memory(kBytes);
    std::optional<RegisteredMemory> registered;
    {
      Communicator part = comm.duplicate();
      registered.emplace(part, memory.data(), kBytes, MemorySource{memory.fd(), 0});
    }
    std::fill_n(memory.as<float>(), kCount, 1.0F);
    comm.all_reduce(memory.data(), memory.data(), kCount, DataType::kFloat32, ops::sum);
    require_all(memory.as<float>(), kCount, 2.0F, "a sum");
    comm.close();
    require_mapped(*registered);
    registered.reset();
  });
}

}  // namespace
}  // namespace unisono::test
