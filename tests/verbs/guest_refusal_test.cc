// A job that cannot have the ports it asks for says why and what to do, before it has begun; `auto`
// goes without them.
#include <gmock/gmock.h>
#include <grp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

#include "tests/support/child_process.h"
#include "tests/support/log_guard.h"
#include "tests/support/rank_job.h"
#include "tests/verbs/guest_ports.h"

namespace unisono::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Refusal {
  const char* name;
  const char* variable;
  const char* value;
  ErrorCode code;
  std::vector<std::string> words;
};

void PrintTo(const Refusal& refusal, std::ostream* out) { *out << refusal.name; }

class Wish : public testing::TestWithParam<Refusal> {
 protected:
  void SetUp() override {
    if (guest_devices().empty()) GTEST_SKIP() << "no device here";
  }
};

TEST_P(Wish, ThatNoPortFulfilsIsRefusedInWords) {
  const Refusal& refusal = GetParam();
  const Environment environment{{refusal.variable, refusal.value}};
  const Error error = error_of_job(2, "verbs", [](Communicator& comm) { add_up(comm, 10); });
  EXPECT_EQ(error.code(), refusal.code) << error.what();
  for (const std::string& word : refusal.words) EXPECT_THAT(error.what(), HasSubstr(word));
}

TEST_P(Wish, ThatNoPortFulfilsDoesNotKeepAutoFromWorking) {
  const Environment environment{{GetParam().variable, GetParam().value}};
  run_ranks(2, "auto", [](Communicator& comm) { add_up(comm, 10); });
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, Wish,
    testing::Values(Refusal{"device",
                            "UNISONO_VERBS_DEVICES",
                            "mlx5_9",
                            ErrorCode::kInvalidArgument,
                            {"mlx5_9", "this machine has: rxe0 port 1"}},
                    Refusal{"port",
                            "UNISONO_VERBS_DEVICES",
                            "rxe0:2",
                            ErrorCode::kInvalidArgument,
                            {"rxe0 port 2", "this machine has: rxe0 port 1"}},
                    Refusal{"address",
                            "UNISONO_VERBS_GID",
                            "10.9.9.9",
                            ErrorCode::kUnsupported,
                            {"rxe0 port 1", "::ffff:10.9.9.9", "the port has",
                             "::ffff:10.77.0.1 (RoCE v2)", "change UNISONO_VERBS_GID"}},
                    Refusal{"gid_type",
                            "UNISONO_VERBS_GID",
                            "rocev1",
                            ErrorCode::kUnsupported,
                            {"rxe0 port 1", "no GID of type RoCE v1", "change UNISONO_VERBS_GID"}},
                    Refusal{
                        "partition",
                        "UNISONO_VERBS_PARTITION",
                        "0x9234",
                        ErrorCode::kUnsupported,
                        {"rxe0 port 1", "UNISONO_VERBS_PARTITION 0x9234 is not in the port's table",
                         "0xffff", "choose one of these"}}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Ports, ThatAreAllDownAreNamed) {
  const std::vector<std::string> devices = guest_devices();
  if (devices.empty()) GTEST_SKIP() << "no device here";
  const Unplugged unplugged(devices);
  const Error error = error_of_job(2, "verbs", [](Communicator& comm) { add_up(comm, 10); });
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
  for (const std::string& device : devices) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(device + " port 1: the port is DOWN"),
                                    HasSubstr("ip link set dev NAME up")));
  }
}

TEST(Ports, ThatAreDownAreLeftOutWhereAnotherIsUp) {
  const std::vector<std::string> devices = guest_devices();
  if (devices.size() < 2) GTEST_SKIP() << "one device here";
  const Unplugged unplugged({devices.front()});
  run_ranks(3, "verbs", [](Communicator& comm) {
    for (const std::size_t count : {10ul, 300'000ul}) add_up(comm, count);
  });
}

TEST(NoDevice, IsSaidWithTheRemedy) {
  if (!guest_devices().empty()) GTEST_SKIP() << "there are devices here";
  const Error error = error_of_job(2, "verbs", [](Communicator& comm) { add_up(comm, 10); });
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported) << error.what();
  EXPECT_THAT(error.what(), AllOf(HasSubstr("no verbs device"), HasSubstr("modprobe")));
}

TEST(NoDevice, DoesNotKeepAutoFromWorking) {
  if (!guest_devices().empty()) GTEST_SKIP() << "there are devices here";
  LogGuard quiet;
  run_ranks(3, "auto", [](Communicator& comm) { add_up(comm, 100'000); });
}

// ---- The limit of locked memory -------------------------------------------------------------

constexpr unsigned kNobody = 65534;

// As a user whom the limit binds: root is exempt from it.
bool become_nobody(rlim_t memlock_bytes) {
  const rlimit limit{memlock_bytes, memlock_bytes};
  return setrlimit(RLIMIT_MEMLOCK, &limit) == 0 && setgroups(0, nullptr) == 0 &&
         setgid(kNobody) == 0 && setuid(kNobody) == 0;
}

int add_up_as_nobody(rlim_t memlock_bytes, std::size_t count) {
  if (!become_nobody(memlock_bytes)) return 2;
  const Error error =
      error_of_job(2, "verbs", [count](Communicator& comm) { add_up(comm, count); });
  std::printf("%s: %s\n", std::string(name_of(error.code())).c_str(), error.what());
  return error.code() == ErrorCode::kOk ? 0 : 3;
}

const RoleEntry scarce_memory("scarce_memory", [] { return add_up_as_nobody(64 * 1024, 10); });
const RoleEntry some_memory("some_memory",
                            [] { return add_up_as_nobody(rlim_t{48} << 20, 16 << 20); });

class LockedMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (guest_devices().empty()) GTEST_SKIP() << "no device here";
    if (getuid() != 0) GTEST_SKIP() << "only root can become nobody";
  }
};

TEST_F(LockedMemory, OfTooLittleIsRefusedWithLimitAndRemedy) {
  ChildProcess job("scarce_memory", {});
  EXPECT_EQ(job.wait(), 3) << job.output();
  EXPECT_THAT(job.output(), AllOf(HasSubstr(std::string(name_of(ErrorCode::kOutOfResources))),
                                  HasSubstr("rxe0 port 1"), HasSubstr("(memlock) is 64 KiB"),
                                  HasSubstr("ulimit -l unlimited")));
}

// Enough for the transport, but not for the user's 64 MiB: these are copied.
TEST_F(LockedMemory, OfTooLittleForTheBuffersGivesTheSameResults) {
  ChildProcess job("some_memory", {"UNISONO_VERBS_DEVICES=rxe0"});
  EXPECT_EQ(job.wait(), 0) << job.output();
}

}  // namespace
}  // namespace unisono::test
