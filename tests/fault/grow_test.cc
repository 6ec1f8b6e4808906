// A communicator grows: members and newcomers get the same larger one, whoever is replaced, and a
// newcomer that dies on its way costs the members only the time that they wait for it.
#include <gmock/gmock.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>

#include "base/process_facts.h"
#include "rendezvous/store/wait_list.h"
#include "tests/fault/outcome_board.h"
#include "tests/fault/role_report.h"
#include "tests/fault/survivors.h"
#include "tests/support/child_process.h"
#include "tests/support/folder_store.h"
#include "tests/support/map_store.h"
#include "tests/support/rank_job.h"
#include "tests/support/seed.h"
#include "tests/support/setting.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tested_transports.h"
#include "tests/support/try_limits.h"
#include "tests/support/watchdog.h"

namespace unisono::test {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr const char* kGroup = "group";
constexpr int kRanks = 4;

// ---- Processes ------------------------------------------------------------------------------

[[noreturn]] void die() {
  kill(getpid(), SIGKILL);
  std::abort();
}

int number_of(const char* name) { return std::atoi(std::getenv(name)); }

// Ranks 0 to 3 of `comm` are those of the first communicator.
void expect_everyone(Communicator& comm, Rank self) { expect_members(comm, self, {0, 1, 2, 3}); }

// Of the first communicator, or in the place of one that was killed. Each cycle ends one of them.
int live_as_rank() {
  const Rank self = number_of("GROW_RANK");
  try {
    FolderStore store(std::getenv("GROW_FOLDER"));
    const InitOptions options{.timeout = kCallTimeout};
    const int cycle = number_of("GROW_CYCLE");
    Communicator comm = cycle == 0 ? join(store, "first", self, kRanks, options)
                                   : rejoin(store, kGroup, self, options);
    for (int done = cycle; done <= number_of("GROW_CYCLES"); ++done) {
      expect_everyone(comm, self);
      std::printf("cycle %d\n", done);
      std::fflush(stdout);
      if (done == number_of("GROW_CYCLES")) break;
      call_until_failure(comm);
      comm = comm.shrink();
      require(comm.size() == kRanks - 1, "more than one is missing");
      comm = comm.grow(store, kGroup, {.wait = kCallTimeout, .key = self});
      require(!comm.empty(), "nobody came");
    }
    comm.barrier();
    return 0;
  } catch (const std::exception& error) {
    std::printf("rank %d: %s\n", self, error.what());
    return kFailed;
  }
}
const RoleEntry kRank("rank", live_as_rank);

void die_soon() {
  if (number_of("GROW_DIES_AFTER_US") < 0) return;
  std::thread([] {
    usleep(static_cast<useconds_t>(number_of("GROW_DIES_AFTER_US")));
    die();
  }).detach();
}

// Among members of which one dies soon after it has begun to grow, or the first newcomer after it
// has begun to wait: in the end those that are left are together with the last newcomer.
int live_beside_a_dying_rank() {
  const Rank self = number_of("GROW_RANK");
  const int members = number_of("GROW_MEMBERS");
  const Rank last = number_of("GROW_LAST");
  const bool is_newcomer = self >= members;
  // Long enough to meet, too short to wait for the dead again and again.
  const milliseconds patience(is_sanitized() ? 5000 : 1000);
  try {
    FolderStore store(std::getenv("GROW_FOLDER"));
    const InitOptions options{.timeout = kCallTimeout};
    if (is_newcomer) die_soon();
    Communicator comm = is_newcomer ? rejoin(store, kGroup, self, options)
                                    : join(store, "first", self, members, options);
    if (!is_newcomer) {
      comm.barrier();  // join() fails where one dies that the others still wait for
      die_soon();
    }
    for (;;) {
      try {
        Rank highest = self;
        comm.all_reduce(std::span<Rank>(&highest, 1), ops::max);
        if (highest < last) {
          Communicator grown =
              comm.grow(store, kGroup,
                        {.at_most = 1, .wait = kCallTimeout, .key = self, .timeout = patience});
          if (!grown.empty()) comm = std::move(grown);
        } else if (comm.size() == last) {
          comm.barrier();
          return 0;
        }
      } catch (const Error& error) {
        // Then this one works.
        if (error.code() == ErrorCode::kRendezvous) continue;
        comm = comm.shrink();
        if (is_newcomer) require(comm.size() > 1, "the newcomer is alone");
      }
    }
  } catch (const std::exception& error) {
    std::printf("rank %d: %s\n", self, error.what());
    return kFailed;
  }
}
const RoleEntry kBesideADyingRank("beside_a_dying_rank", live_beside_a_dying_rank);

// Is invited, and dies then.
int live_until_invited() {
  FolderStore store(std::getenv("GROW_FOLDER"));
  rendezvous::Newcomer newcomer(store, kGroup, number_of("GROW_RANK"), process_name());
  static_cast<void>(newcomer.await_invitation(Clock::now() + kCallTimeout));
  die();
}
const RoleEntry kUntilInvited("until_invited", live_until_invited);

class GrowOfProcesses : public testing::TestWithParam<std::string> {
 protected:
  ChildProcess start(Rank rank, int cycle) {
    return ChildProcess(
        "rank", {"GROW_RANK=" + std::to_string(rank), "GROW_CYCLE=" + std::to_string(cycle),
                 "GROW_CYCLES=" + std::to_string(victims_.size()), "GROW_FOLDER=" + folder_.path(),
                 "UNISONO_TRANSPORT=" + GetParam()});
  }
  const std::vector<Rank> victims_{2, 0, 3, 0};
  TemporaryFolder folder_;
};

TEST_P(GrowOfProcesses, PutsOneInThePlaceOfWhoWasKilled) {
  std::map<Rank, ChildProcess> ranks;
  for (Rank rank = 0; rank < kRanks; ++rank) ranks.emplace(rank, start(rank, 0));
  for (std::size_t cycle = 0; cycle < victims_.size(); ++cycle) {
    for (auto& [rank, process] : ranks) {
      ASSERT_TRUE(process.prints("cycle " + std::to_string(cycle) + "\n"))
          << "rank " << rank << ": " << process.output();
    }
    const Rank victim = victims_[cycle];
    ranks.at(victim).kill(SIGKILL);
    EXPECT_EQ(ranks.at(victim).wait(), 1000 + SIGKILL);
    ranks.erase(victim);
    ranks.emplace(victim, start(victim, static_cast<int>(cycle) + 1));
  }
  for (auto& [rank, process] : ranks) EXPECT_EQ(process.wait(), 0) << process.output();
}

// Whenever that is: before the members meet, while they do or agree, or afterwards.
TEST_P(GrowOfProcesses, KeepsAllTogetherWhoeverDiesMeanwhile) {
  const SeedTrace seed_trace;
  std::mt19937_64 random = random_stream(19);
  const int rounds = is_full_run() ? 200 : is_short_run() ? 3 : 8;
  for (int round = 0; round < rounds; ++round) {
    const int members = 2 + round % 2;
    const auto victim = static_cast<Rank>(below(random, static_cast<std::uint64_t>(members) + 1));
    // Where the newcomer dies another one comes.
    const Rank last = victim == members ? members + 1 : members;
    const auto delay_us = below(random, 20'000);
    SCOPED_TRACE("rank " + std::to_string(victim) + " of " + std::to_string(members) + " after " +
                 std::to_string(delay_us) + " us");
    const TemporaryFolder folder;
    std::vector<ChildProcess> ranks;
    for (Rank rank = 0; rank <= last; ++rank) {
      const std::string delay = rank == victim ? std::to_string(delay_us) : "-1";
      ranks.emplace_back(
          "beside_a_dying_rank",
          std::vector<std::string>{
              "GROW_RANK=" + std::to_string(rank), "GROW_DIES_AFTER_US=" + delay,
              "GROW_MEMBERS=" + std::to_string(members), "GROW_LAST=" + std::to_string(last),
              "GROW_FOLDER=" + folder.path(), "UNISONO_TRANSPORT=" + GetParam()});
    }
    for (Rank rank = 0; rank <= last; ++rank) {
      ChildProcess& process = ranks[static_cast<std::size_t>(rank)];
      EXPECT_EQ(process.wait(), rank == victim ? 1000 + SIGKILL : 0) << process.output();
    }
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, GrowOfProcesses,
                         testing::ValuesIn(tested_transports_but({"loopback", "shm"})),
                         [](const auto& info) { return info.param; });

// ---- Threads --------------------------------------------------------------------------------

// Newcomers that run beside the members.
class Newcomers {
 public:
  explicit Newcomers(Store& store) : store_(store) {}
  ~Newcomers() {
    for (std::thread& thread : threads_) thread.join();
    complaints_.report("newcomers");
  }
  void add(int key, const std::function<void(Communicator&)>& body) {
    threads_.emplace_back([this, key, body] {
      try {
        Communicator comm = rejoin(store_, kGroup, key, {.timeout = kCallTimeout});
        body(comm);
      } catch (const std::exception& error) {
        complaints_.add(key, error.what());
      }
    });
  }
  // It is invited and never heard of again.
  void add_one_that_dies(int key = 0) {
    threads_.emplace_back([this, key] {
      rendezvous::Newcomer newcomer(store_, kGroup, key, "");
      const auto invitation = newcomer.await_invitation(Clock::now() + kCallTimeout);
      if (!invitation) complaints_.add(-1, invitation.error().message());
    });
  }

 private:
  Store& store_;
  std::vector<std::thread> threads_;
  Complaints complaints_;
};

// Newcomers that wait on the list.
void expect_waiting(Store& store, int place) {
  const std::string key = "unisono/grow/group/place/" + std::to_string(place);
  require(!store.get(key, kCallTimeout).empty(), "nobody waits");
}

TEST(Grow, TakesInSeveralAtOnce) {
  MapStore store;
  Newcomers newcomers(store);
  const auto is_one_of_four = [](Communicator& comm) {
    expect_members(comm, comm.rank(), {0, 1, 2, 3});
  };
  newcomers.add(0, is_one_of_four);
  newcomers.add(0, is_one_of_four);
  run_ranks(2, "auto", [&](Communicator& comm) {
    Communicator grown = comm.grow(store, kGroup, {.at_least = 2, .wait = kCallTimeout});
    require(grown.rank() == comm.rank(), "members come first");
    is_one_of_four(grown);
    expect_members(comm, comm.rank(), {0, 1});
  });
}

// Members may be as many as the algorithm does not take.
TEST(Grow, AsksNoAlgorithmOfTheSettings) {
  const Setting setting("UNISONO_ALGORITHM", "broadcast=bine,all_gather=recursive_doubling");
  MapStore store;
  Newcomers newcomers(store);
  newcomers.add(0, [](Communicator& comm) { comm.barrier(); });
  run_ranks(3, "auto", [&](Communicator& comm) {
    Communicator grown = comm.grow(store, kGroup, {.wait = kCallTimeout});
    require(grown.size() == 4, "nobody came");
    grown.barrier();
  });
}

TEST(Grow, OrdersRanksByKey) {
  MapStore store;
  Newcomers newcomers(store);
  for (const int key : {3, 1}) {
    newcomers.add(key, [key](Communicator& comm) { expect_members(comm, key, {0, 1, 2, 3}); });
  }
  run_ranks(2, "auto", [&](Communicator& comm) {
    const int key = 2 * comm.rank();
    Communicator grown =
        comm.grow(store, kGroup, {.at_least = 2, .wait = kCallTimeout, .key = key});
    expect_members(grown, key, {0, 1, 2, 3});
  });
}

TEST(Grow, TakesInNoMoreThanWanted) {
  MapStore store;
  Newcomers newcomers(store);
  newcomers.add(0, [](Communicator& comm) { comm.barrier(); });
  newcomers.add(0, [](Communicator& comm) { comm.barrier(); });
  run_ranks(2, "auto", [&](Communicator& comm) {
    expect_waiting(store, 1);
    Communicator first = comm.grow(store, kGroup, {.at_most = 1});
    require(first.size() == 3, "not one came");
    Communicator second = comm.grow(store, kGroup, {.wait = kCallTimeout});
    require(second.size() == 3, "not one came");
    first.barrier();
    second.barrier();
  });
}

TEST(Grow, IsEmptyWhereTooFewCome) {
  MapStore store;
  Newcomers newcomers(store);
  run_ranks(2, "auto", [&](Communicator& comm) {
    require(comm.grow(store, kGroup).empty(), "somebody came");
    if (comm.rank() == 0) newcomers.add(0, [](Communicator& grown) { grown.barrier(); });
    require(comm.grow(store, kGroup, {.at_least = 2, .wait = milliseconds(50)}).empty(), "two");
    Communicator grown = comm.grow(store, kGroup, {.wait = kCallTimeout});
    require(grown.size() == 3, "nobody came");
    grown.barrier();
    comm.barrier();
  });
}

// The members have that time to meet.
void go_on_without_one_that_dies(milliseconds patience) {
  MapStore store;
  Newcomers newcomers(store);
  newcomers.add_one_that_dies();
  run_ranks(3, "auto", [&](Communicator& comm) {
    const Outcome outcome =
        outcome_of([&] { comm.grow(store, kGroup, {.wait = kCallTimeout, .timeout = patience}); });
    require(outcome.written && outcome.code == ErrorCode::kRendezvous, outcome.message);
    require(std::string(outcome.message).find("rank 3 of 4 did not arrive") != std::string::npos,
            outcome.message);
    require(comm.grow(store, kGroup).empty(), "it was taken again");
    if (comm.rank() == 1) newcomers.add(0, [](Communicator& grown) { grown.barrier(); });
    Communicator grown = comm.grow(store, kGroup, {.wait = kCallTimeout});
    require(grown.size() == 4, "nobody came");
    grown.barrier();
    expect_members(comm, comm.rank(), {0, 1, 2});
  });
}

TEST(Grow, GoesOnWithoutANewcomerThatDiesOnItsWay) {
  try_limits({milliseconds(2000), milliseconds(5000), milliseconds(10'000)},
             go_on_without_one_that_dies);
}

// One that was to be rank 0 of the new job, and one that was to be the last rank. By time alone all
// would hear that it did not arrive.
TEST(Grow, HearsByTheEndOfItsProcessThatANewcomerOfItsHostHasDied) {
  for (const int key : {-1, 5}) {
    const TemporaryFolder folder;
    FolderStore store(folder.path());
    ChildProcess newcomer("until_invited",
                          {"GROW_RANK=" + std::to_string(key), "GROW_FOLDER=" + folder.path()});
    run_ranks(3, "auto", [&](Communicator& comm) {
      const Outcome outcome = outcome_of([&] {
        comm.grow(store, kGroup,
                  {.wait = kCallTimeout, .key = comm.rank(), .timeout = kCallTimeout});
      });
      require(outcome.written && outcome.code == ErrorCode::kRendezvous, outcome.message);
      require(std::string(outcome.message).find("its process has ended") != std::string::npos,
              outcome.message);
      expect_members(comm, comm.rank(), {0, 1, 2});
    });
    EXPECT_EQ(newcomer.wait(), 1000 + SIGKILL);
  }
}

// Without it nobody knows where to meet.
TEST(Grow, GoesOnWithoutANewcomerThatWasToBeRankZero) {
  MapStore store;
  Newcomers newcomers(store);
  newcomers.add_one_that_dies(-1);
  run_ranks(2, "auto", [&](Communicator& comm) {
    const Outcome outcome = outcome_of(
        [&] { comm.grow(store, kGroup, {.wait = kCallTimeout, .timeout = milliseconds(200)}); });
    require(outcome.written && outcome.code == ErrorCode::kRendezvous, outcome.message);
    expect_members(comm, comm.rank(), {0, 1});
  });
}

// What earlier newcomers, or anybody, have left in the store.
TEST(Grow, CrossesOutWhoDoesNotAnswerAndWhatIsNoNewcomer) {
  MapStore store;
  Newcomers newcomers(store);
  const std::string hex(32, 'a');
  const std::vector<std::string> entries{"2 " + hex + " 0 ?",          "2 " + hex + " 0 ? more",
                                         "1 " + hex + " 0 ?",          "2 nobody 0 ?",
                                         "2 " + hex + " 1e9 ?",        std::string(100'000, 'x'),
                                         "2 " + hex + " 99999999999 ?"};
  for (std::size_t i = 0; i < entries.size(); ++i) {
    store.set("unisono/grow/group/place/" + std::to_string(i), entries[i]);
  }
  store.set("unisono/grow/group/first", "-7");
  run_ranks(2, "auto", [&](Communicator& comm) {
    require(comm.grow(store, kGroup).empty(), "somebody came");
    if (comm.rank() == 0) newcomers.add(0, [](Communicator& grown) { grown.barrier(); });
    Communicator grown = comm.grow(store, kGroup, {.wait = kCallTimeout});
    require(grown.size() == 3, "nobody came");
    grown.barrier();
  });
  for (std::size_t i = 0; i < entries.size(); ++i) {
    EXPECT_EQ(store.get("unisono/grow/group/place/" + std::to_string(i), milliseconds(1)), "-");
  }
}

TEST(Grow, LeavesNothingBehind) {
  constexpr int kCycles = 20;
  MapStore store;
  Newcomers newcomers(store);
  run_ranks(2, "auto", [&](Communicator& comm) {
    std::ptrdiff_t before = 0;
    for (int cycle = 0; cycle < kCycles; ++cycle) {
      std::atomic<bool> is_over{false};
      if (comm.rank() == 0) {
        newcomers.add(0, [&](Communicator& grown) {
          grown.barrier();
          grown.close();
          is_over = true;
        });
      }
      Communicator grown = comm.grow(store, kGroup, {.wait = kCallTimeout});
      grown.barrier();
      grown.close();
      if (comm.rank() == 0) require(eventually([&] { return is_over.load(); }), "hung");
      comm.barrier();
      // Looking takes one itself. Threads of closed jobs end a moment later.
      if (comm.rank() == 0 && cycle == 1) before = open_descriptors();
      comm.barrier();
    }
    const auto is_clean = [&] { return open_descriptors() <= before; };
    if (comm.rank() == 0) require(eventually(is_clean), "descriptors are left");
    comm.barrier();
  });
}

// The store of a member: crossing a newcomer out waits until that is in, and fails where it is to.
class StoreOfMember : public Store {
 public:
  StoreOfMember(MapStore& store, const std::atomic<bool>& is_in, bool fails)
      : store_(store), is_in_(is_in), fails_(fails) {}
  void set(std::string_view key, std::string_view value) override {
    if (value == "-") {
      has_waited_in_vain_ = !eventually([&] { return is_in_.load(); });
      if (fails_) throw std::runtime_error("no disk");
    }
    store_.set(key, value);
  }
  std::string get(std::string_view key, milliseconds timeout) override {
    return store_.get(key, timeout);
  }
  bool has_waited_in_vain() const { return has_waited_in_vain_; }

 private:
  MapStore& store_;
  const std::atomic<bool>& is_in_;
  const bool fails_;
  std::atomic<bool> has_waited_in_vain_{false};
};

TEST(Grow, IsUsedBeforeTheStoreIsCleanedAndThoughThatFails) {
  for (const bool fails : {false, true}) {
    MapStore store;
    std::atomic<bool> is_in{false};
    StoreOfMember slow(store, is_in, fails);
    Newcomers newcomers(store);
    newcomers.add(0, [&](Communicator& grown) {
      is_in = true;
      grown.barrier();
    });
    run_ranks(2, "auto", [&](Communicator& comm) {
      Communicator grown = comm.grow(slow, kGroup, {.wait = kCallTimeout});
      require(!slow.has_waited_in_vain(), "the newcomer has waited for the store");
      require(grown.size() == 3, "nobody came");
      grown.barrier();
    });
    EXPECT_EQ(store.get("unisono/grow/group/place/0", milliseconds(1)), "-");
  }
}

// ---- What is refused ------------------------------------------------------------------------

void expect_refusal(Communicator& comm, Store& store, std::string_view name,
                    const GrowOptions& options, ErrorCode code, const std::string& words) {
  const Outcome outcome = outcome_of([&] { comm.grow(store, name, options); });
  require(outcome.written && outcome.code == code, outcome.message);
  require(std::string(outcome.message).find(words) != std::string::npos, outcome.message);
}

class BrokenStore : public Store {
 public:
  void set(std::string_view, std::string_view) override { throw std::runtime_error("no disk"); }
  std::string get(std::string_view, milliseconds) override { throw 7; }
};

TEST(Grow, TellsAllRanksWhatIsWrong) {
  run_ranks(2, "auto", [](Communicator& comm) {
    MapStore store;
    BrokenStore broken;
    const auto code = ErrorCode::kInvalidArgument;
    expect_refusal(comm, store, "", {}, code, "name has 0 bytes");
    expect_refusal(comm, store, std::string(201, 'n'), {}, code, "name has 201 bytes");
    expect_refusal(comm, store, kGroup, {.at_least = 0}, code, "at least 0");
    expect_refusal(comm, store, kGroup, {.at_least = 3, .at_most = 2}, code, "at most 2");
    expect_refusal(comm, store, kGroup, {.timeout = milliseconds(-1)}, code, "negative");
    expect_refusal(comm, broken, kGroup, {}, ErrorCode::kRendezvous, "the given store failed");
    const Outcome outcome = outcome_of([&] { comm.grow(); });
    require(outcome.code == ErrorCode::kUnsupported, outcome.message);
    expect_members(comm, comm.rank(), {0, 1});
  });
}

TEST(Rejoin, SaysThatNobodyLetItIn) {
  MapStore store;
  const Outcome outcome =
      outcome_of([&] { rejoin(store, kGroup, 0, {.timeout = milliseconds(300)}); });
  EXPECT_EQ(outcome.code, ErrorCode::kTimeout);
  EXPECT_THAT(outcome.message, HasSubstr("nobody let this newcomer in"));
  // Nobody asks for it afterwards.
  EXPECT_EQ(store.get("unisono/grow/group/place/0", milliseconds(1)), "-");
}

// It would for ever be let in, and fail every grow(). Whoever waits beside it waits on.
TEST(Rejoin, LeavesTheListWhereThisRankCannotTakePart) {
  MapStore store;
  Newcomers newcomers(store);
  newcomers.add(0, [](Communicator& grown) { grown.barrier(); });
  Outcome refused;
  std::jthread newcomer([&] {
    refused =
        outcome_of([&] { rejoin(store, kGroup, 0, {.timeout = kCallTimeout, .device = 1000}); });
  });
  run_ranks(2, "auto", [&](Communicator& comm) {
    const Outcome outcome =
        outcome_of([&] { comm.grow(store, kGroup, {.at_least = 2, .wait = kCallTimeout}); });
    require(outcome.written && outcome.code == ErrorCode::kRendezvous, outcome.message);
    require(std::string(outcome.message).find("cannot take part") != std::string::npos,
            outcome.message);
    if (comm.rank() == 0) newcomer.join();
    Communicator grown = comm.grow(store, kGroup, {.wait = kCallTimeout});
    require(grown.size() == 3, "the other one did not come");
    grown.barrier();
  });
  EXPECT_THAT(refused.code, testing::AnyOf(ErrorCode::kInvalidArgument, ErrorCode::kUnsupported))
      << refused.message;
}

// It is the newcomer that is wrong, whoever has come first, rank 0 of the grown job as well.
TEST(Rejoin, LeavesTheListWhereItsSettingsDiffer) {
  for (const int key : {-1, 9}) {
    MapStore store;
    Outcome refused;
    std::jthread newcomer([&] {
      refused = outcome_of(
          [&] { rejoin(store, kGroup, key, {.timeout = kCallTimeout, .order = Order::kExact}); });
    });
    run_ranks(2, "auto", [&](Communicator& comm) {
      const Outcome outcome =
          outcome_of([&] { comm.grow(store, kGroup, {.wait = kCallTimeout, .key = comm.rank()}); });
      require(outcome.written && outcome.code == ErrorCode::kRendezvous, outcome.message);
      if (comm.rank() == 0) newcomer.join();
      comm.barrier();
      require(comm.grow(store, kGroup, {.key = comm.rank()}).empty(), "it waits again");
    });
    EXPECT_EQ(refused.code, ErrorCode::kMismatch) << refused.message;
    EXPECT_THAT(refused.message, HasSubstr("differ in"));
  }
}

TEST(Rejoin, RefusesWhatOnlyInitTakes) {
  MapStore store;
  EXPECT_EQ(outcome_of([&] { rejoin(store, kGroup, 0, {.rank = 1}); }).code,
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(outcome_of([&] { rejoin(store, "", 0); }).code, ErrorCode::kInvalidArgument);
}

TEST(Grow, OfAWorldOfOne) {
  MapStore store;
  Newcomers newcomers(store);
  newcomers.add(0, [](Communicator& comm) { expect_members(comm, 1, {0, 1}); });
  Communicator comm = init({.rendezvous = "alone://"});
  Communicator grown = comm.grow(store, kGroup, {.wait = kCallTimeout});
  comm.close();
  expect_members(grown, 0, {0, 1});
}

}  // namespace
}  // namespace unisono::test
