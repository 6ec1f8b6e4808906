// Ranks as processes: a small matrix over each transport and each way of reading a peer's memory.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "base/sanitizers.h"
#include "tests/collective/collective_case.h"
#include "tests/support/rank_job.h"
#include "tests/support/tested_transports.h"
#include "tests/support/watchdog.h"

namespace unisono::test {
namespace {

using testing::HasSubstr;

// A child cannot fail the parent's test: it throws, and spawn() reports its exit.
void run_small_matrix(Communicator& comm) {
  auto number = static_cast<std::size_t>(comm.size());
  for (int c = 0; c < static_cast<int>(Collective::kSend); ++c) {
    for (const std::size_t count : {0ul, 1ul, 100ul, 3000ul, 150'000ul}) {
      for (const DataType type : {DataType::kFloat32, DataType::kInt8}) {
        ++number;
        if (is_anothers_case(number + static_cast<std::size_t>(c), 3)) continue;
        CollectiveCase each{static_cast<Collective>(c), type, OpKind::kSum, count};
        each.root = static_cast<Rank>(number % static_cast<std::size_t>(comm.size()));
        each.in_place = number % 3 == 0 && each.collective != Collective::kAllToAllV;
        each.displaced = number % 2 == 0 && each.collective != Collective::kReduceScatterV;
        const std::string wrong = run_case(comm, each);
        if (!wrong.empty()) throw std::runtime_error(describe(each) + ": " + wrong);
      }
    }
  }
}

class Processes : public testing::TestWithParam<std::string> {};

TEST_P(Processes, RunTheSmallMatrix) {
  for (const int ranks : {1, 2, 4}) spawn_processes(ranks, GetParam(), &run_small_matrix);
}

TEST_P(Processes, ExchangeMessages) {
  spawn_processes(3, GetParam(), [](Communicator& comm) {
    const Rank next = (comm.rank() + 1) % comm.size();
    const Rank before = (comm.rank() + comm.size() - 1) % comm.size();
    for (const std::size_t count : {1ul, 5000ul, 700'000ul}) {
      const std::vector<int> out(count, comm.rank());
      std::vector<int> in(count, -1);
      Request request = comm.receive_async(in.data(), count, DataType::kInt32, before);
      comm.send(out, next);
      request.wait();
      if (in != std::vector<int>(count, before)) throw std::runtime_error("a message is wrong");
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, Processes, testing::ValuesIn(tested_transports_of_processes()),
                         [](const auto& info) { return info.param; });

class Access : public testing::TestWithParam<const char*> {};

void run_shared_buffers(Communicator& comm) {
  constexpr std::size_t kCount = 400'000;
  SharedBuffer<float> in(comm, kCount);
  SharedBuffer<float> out(comm, kCount);
  for (int round = 0; round < 3; ++round) {
    std::fill(in.begin(), in.end(), static_cast<float>(comm.rank() + round));
    comm.all_reduce(in, out, ops::sum);
    const int n = comm.size();
    const auto expected = static_cast<float>(n * (n - 1) / 2 + n * round);
    for (const float value : out) {
      if (value != expected) throw std::runtime_error("a shared buffer's sum is wrong");
    }
    // Plain memory on odd ranks, shared memory on even ones: each owner decides alone.
    std::vector<float> plain(kCount, 1.0f);
    if (comm.rank() % 2 == 0) {
      std::fill(in.begin(), in.end(), 1.0f);
      comm.all_reduce(in, in, ops::sum);
      plain.assign(in.begin(), in.end());
    } else {
      comm.all_reduce(plain, ops::sum);
    }
    if (plain != std::vector<float>(kCount, static_cast<float>(n))) {
      throw std::runtime_error("a mixed sum is wrong");
    }
  }
}

// Both ways at once, of plain and of shared memory; what was sent is spoilt as soon as send() ends.
void exchange_large_messages(Communicator& comm) {
  constexpr std::size_t kCount = 800'000;
  const Rank next = (comm.rank() + 1) % comm.size();
  const Rank before = (comm.rank() + comm.size() - 1) % comm.size();
  SharedBuffer<float> shared(comm, kCount);
  std::vector<float> plain(kCount);
  std::vector<float> in(kCount);
  for (int round = 0; round < 12; ++round) {
    float* const out = round % 2 == 0 ? shared.data() : plain.data();
    const std::size_t count = kCount >> (round / 2);
    for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<float>(i + 7 * next);
    Request request = comm.receive_async(in.data(), count, DataType::kFloat32, before);
    comm.send(out, count, DataType::kFloat32, next);
    std::fill_n(out, count, -1.0F);
    request.wait();
    for (std::size_t i = 0; i < count; ++i) {
      if (in[i] != static_cast<float>(i + 7 * comm.rank())) {
        throw std::runtime_error("message " + std::to_string(round) + " is wrong at " +
                                 std::to_string(i));
      }
    }
  }
}

TEST_P(Access, OfProcessesGivesTheSameResults) {
  setenv("UNISONO_ACCESS", GetParam(), 1);
  for (const int ranks : {2, 3}) {
    spawn_processes(ranks, "shm", &run_small_matrix);
    spawn_processes(ranks, "shm", &run_shared_buffers);
    spawn_processes(ranks, "shm", &exchange_large_messages);
  }
  unsetenv("UNISONO_ACCESS");
}

TEST_P(Access, OfThreadsGivesTheSameResults) {
  setenv("UNISONO_ACCESS", GetParam(), 1);
  for (const int ranks : {2, 3}) {
    run_ranks(ranks, "shm", &run_small_matrix);
    run_ranks(ranks, "shm", &run_shared_buffers);
    run_ranks(ranks, "shm", &exchange_large_messages);
  }
  unsetenv("UNISONO_ACCESS");
}

INSTANTIATE_TEST_SUITE_P(Paths, Access,
                         testing::Values("auto", "window", "single_copy", "mapped", "streamed"),
                         [](const auto& info) { return std::string(info.param); });

// What spawn() of three processes throws; an Error of code kOk when it throws nothing.
Error spawn_error(const std::function<void(Communicator&)>& body) {
  try {
    spawn(3, body, {.as = SpawnOptions::As::kProcesses, .timeout = kCallTimeout});
  } catch (const Error& error) {
    return error;
  }
  return Error(Status(), {});
}

TEST(Spawn, NamesTheProcessThatThrew) {
  for (int round = 0; round < 5; ++round) {
    const Error error = spawn_error([](Communicator& comm) {
      if (comm.rank() == 1) throw std::runtime_error("on purpose");
      for (;;) comm.barrier();
    });
    EXPECT_EQ(error.code(), ErrorCode::kRankFailed) << error.what();
    EXPECT_EQ(error.rank(), 1) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("on purpose"));
  }
}

TEST(Spawn, NamesTheProcessThatThrewSomethingOdd) {
  const Error error = spawn_error([](Communicator& comm) {
    if (comm.rank() == 2) throw 42;
    for (;;) comm.barrier();
  });
  EXPECT_EQ(error.rank(), 2) << error.what();
}

TEST(Spawn, NamesTheProcessThatWasKilled) {
  const Error error = spawn_error([](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 1) raise(SIGKILL);
    for (;;) comm.barrier();
  });
  EXPECT_EQ(error.rank(), 1) << error.what();
  EXPECT_THAT(error.what(), HasSubstr("signal 9"));
}

TEST(Spawn, NamesTheProcessThatExited) {
  const Error error = spawn_error([](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 2) _exit(3);
    for (;;) comm.barrier();
  });
  EXPECT_EQ(error.rank(), 2) << error.what();
  EXPECT_THAT(error.what(), HasSubstr("status 3"));
}

TEST(Spawn, LeavesOtherChildrenToTheProgram) {
  const pid_t other = fork();
  if (other == 0) _exit(7);
  siginfo_t ended{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(other), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(spawn_error([](Communicator& comm) { comm.barrier(); }).code(), ErrorCode::kOk);
  int status = 0;
  EXPECT_EQ(waitpid(other, &status, 0), other);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_EQ(waitpid(-1, &status, WNOHANG), -1) << "a rank was not waited for";
}

TEST(Spawn, WaitsForAllWhereSigchldIsIgnored) {
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  EXPECT_EQ(spawn_error([](Communicator& comm) { comm.barrier(); }).code(), ErrorCode::kOk);
  const Error error = spawn_error([](Communicator& comm) {
    comm.barrier();
    if (comm.rank() == 1) _exit(3);
    for (;;) comm.barrier();
  });
  std::signal(SIGCHLD, before);
  EXPECT_EQ(error.rank(), 1) << error.what();
}

TEST(Spawn, RethrowsTheFirstThreadsException) {
  for (int round = 0; round < 10; ++round) {
    EXPECT_THROW(spawn(4,
                       [](Communicator& comm) {
                         if (comm.rank() == 1) throw std::logic_error("on purpose");
                         for (;;) comm.barrier();
                       },
                       {.timeout = kCallTimeout}),
                 std::logic_error);
  }
}

TEST(Spawn, RethrowsWhatIsNoException) {
  EXPECT_THROW(spawn(3,
                     [](Communicator& comm) {
                       if (comm.rank() == 1) throw 42;
                       for (;;) comm.barrier();
                     },
                     {.timeout = kCallTimeout}),
               int);
}

// 0 when spawn() of threads for which there is no address space left throws what it should.
int spawn_without_memory_for_stacks() {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  // Room for a few stacks.
  const rlim_t limit = pages * static_cast<rlim_t>(getpagesize()) + (rlim_t{64} << 20);
  const rlimit limits{limit, limit};
  if (setrlimit(RLIMIT_AS, &limits) != 0) return 2;
  try {
    spawn(500, [](Communicator&) {}, {.timeout = kCallTimeout});
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.code() == ErrorCode::kOutOfResources ? 0 : 3;
  }
  return 4;
}

TEST(Spawn, OfMoreThreadsThanCanBeMadeIsAnError) {
  if (is_sanitized()) GTEST_SKIP() << "a sanitizer needs all of the address space";
  EXPECT_EXIT(_exit(spawn_without_memory_for_stacks()), testing::ExitedWithCode(0),
              "the thread of rank [0-9]+ of 500 cannot be made");
}

// ---- Children of a rank ---------------------------------------------------------------------

// Its parent's job is not the child's, and says so.
void refuse_in_a_child(Communicator& comm, Request& request) {
  const auto refuses = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code() == ErrorCode::kNotMember &&
             std::string(error.what()).find("forked child") != std::string::npos;
    }
    return false;
  };
  float value = 1;
  const bool all =
      refuses([&] { comm.all_reduce(&value, &value, 1, DataType::kFloat32, ops::sum); }) &&
      refuses([&] { comm.barrier_async(); }) && refuses([&] { comm.split(0); }) &&
      refuses([&] { comm.receive(&value, 1, DataType::kFloat32, 0); }) &&
      refuses([&] { request.wait(); }) && refuses([&] { allocate(comm, 64); }) &&
      refuses([&] { register_memory(comm, &value, sizeof value); }) && refuses([&] {
        group(std::vector<MemberCall>{{&comm, {}}});
      }) &&
      !comm.status().ok();
  if (!all) _exit(3);
  comm.abort();  // nobody hears it
}

// A child that ends as programs end, with copies of all that its parent has.
int fork_a_child(Communicator& comm, SharedBuffer<float>& buffer, Request& request) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    refuse_in_a_child(comm, request);
    {
      const Request ended(std::move(request));
      const SharedBuffer<float> released(std::move(buffer));
    }
    comm.close();
    { const Communicator gone(std::move(comm)); }
    // What only threads of the parent pointed to looks lost to a leak check at exit.
    is_sanitized() ? std::quick_exit(0) : std::exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  return status;
}

TEST_P(Processes, MayForkChildrenThatEndNormally) {
  if (UNISONO_ADDRESS_SANITIZER == 1) {
    GTEST_SKIP() << "clang 14's address sanitizer does not hold its allocator's locks across a "
                    "fork: where the parent has other threads the child may wait for ever";
  }
  spawn_processes(2, GetParam(), [](Communicator& comm) {
    constexpr std::size_t kCount = 1000;
    SharedBuffer<float> buffer(comm, kCount);
    std::fill(buffer.begin(), buffer.end(), 1.0f);
    int late = 1;
    int sums[] = {1};
    if (comm.rank() == 1) {
      int value = 0;
      Request pending = comm.receive_async(&value, 1, DataType::kInt32, 0, 1);
      if (fork_a_child(comm, buffer, pending) != 0) throw std::runtime_error("the child failed");
      comm.send(&late, 1, DataType::kInt32, 0, 2);
      pending.wait();
      comm.all_reduce(sums, ops::sum);
    } else {
      comm.receive(&late, 1, DataType::kInt32, 1, 2);
      // Longer than a rank that has left would be waited for.
      Request pending = comm.all_reduce_async(sums, ops::sum);
      if (pending.wait_for(std::chrono::milliseconds(400))) {
        throw std::runtime_error("a sum without rank 1");
      }
      comm.send(&late, 1, DataType::kInt32, 1, 1);
      pending.wait();
    }
    if (sums[0] != 2) throw std::runtime_error("a wrong sum");
    comm.all_reduce(buffer, buffer, ops::sum);
    if (buffer[kCount - 1] != 2.0f) throw std::runtime_error("the child released the buffer");
  });
}

// However the fork falls: while ranks of another thread meet, share memory, or leave.
TEST(ForkedChild, HasJobsOfItsOwnWhileItsParentsThreadsJoinOthers) {
  if (is_sanitized()) GTEST_SKIP() << "sanitizers' own locks are not held across a fork";
  for (const char* const transport : {"shm", "loopback"}) {
    const auto job = [transport] { run_ranks(2, transport, [](Communicator& c) { c.barrier(); }); };
    std::atomic<bool> enough{false};
    std::thread jobs([&] {
      while (!enough) job();
    });
    int status = 0, children = 0;
    for (; children < 60 && status == 0; ++children) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::alarm(30);  // ends it where it hangs
        job();
        ::_exit(::testing::Test::HasFailure() ? 1 : 0);
      }
      ASSERT_EQ(::waitpid(child, &status, 0), child);
    }
    enough = true;
    jobs.join();
    EXPECT_EQ(status, 0) << "of child " << children << " over " << transport;
  }
}

TEST(Spawn, RefusesToForkInsideAJob) {
  run_ranks(1, "auto", [](Communicator&) {
    try {
      spawn(2, [](Communicator&) {}, {.as = SpawnOptions::As::kProcesses});
      ADD_FAILURE() << "it forked";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    }
  });
}

TEST(Spawn, RefusesImpossibleRankCounts) {
  for (const int ranks : {0, -1, 100'000}) {
    EXPECT_THROW(spawn(ranks, [](Communicator&) {}), Error) << ranks;
  }
}

TEST(Spawn, RefusesLoopbackBetweenProcesses) {
  EXPECT_THROW(
      spawn(2, [](Communicator& comm) { comm.barrier(); },
            {.as = SpawnOptions::As::kProcesses, .transport = "loopback", .timeout = kCallTimeout}),
      Error);
}

}  // namespace
}  // namespace unisono::test
