// How communicators of the C API are made, asked and ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/sanitizers.h"
#include "tests/bindings/c_ranks.h"

namespace unisono::test {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

void expect_sum(unisono_comm* comm) {
  const int ranks = unisono_comm_size(comm);
  std::vector<std::int32_t> data(1'000, unisono_comm_rank(comm) + 1);
  EXPECT_TRUE(is_ok(unisono_all_reduce(comm, data.data(), data.data(), data.size(), UNISONO_INT32,
                                       UNISONO_OP_SUM, nullptr)));
  EXPECT_EQ(data, std::vector<std::int32_t>(1'000, ranks * (ranks + 1) / 2));
}

// A map that threads share, as C functions.
struct Table {
  std::mutex mutex{};
  std::condition_variable changed{};
  std::map<std::string, std::string> values{};
};

int set_in_table(void* context, const char* key, const void* value, std::size_t bytes) {
  auto& table = *static_cast<Table*>(context);
  const std::lock_guard lock(table.mutex);
  table.values[key] = std::string(static_cast<const char*>(value), bytes);
  table.changed.notify_all();
  return 0;
}

int get_from_table(void* context, const char* key, std::int64_t timeout_ms,
                   unisono_store_value* value) {
  auto& table = *static_cast<Table*>(context);
  std::unique_lock lock(table.mutex);
  table.changed.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                         [&] { return table.values.contains(key); });
  const auto found = table.values.find(key);
  if (found != table.values.end()) {
    unisono_store_return(value, found->second.data(), found->second.size());
  }
  return 0;
}

unisono_store store_of(Table* table) {
  unisono_store store = UNISONO_STORE_INIT;
  store.context = table;
  store.set = set_in_table;
  store.get = get_from_table;
  return store;
}

unisono_init_options bounded() {
  unisono_init_options options = UNISONO_INIT_OPTIONS_INIT;
  options.timeout_ms = 20'000;
  return options;
}

// Runs `join` as ranks 0 to n - 1, each by a thread of its own, and `body` on what it makes.
template <typename Join>
void run_joined(int n, const Join& join, const Body& body = {}) {
  std::vector<std::jthread> ranks;
  for (int rank = 0; rank < n; ++rank) {
    ranks.emplace_back([&, rank] {
      unisono_comm* comm = nullptr;
      ASSERT_TRUE(is_ok(join(rank, &comm)));
      EXPECT_EQ(unisono_comm_rank(comm), rank);
      EXPECT_EQ(unisono_comm_size(comm), n);
      expect_sum(comm);
      if (body) body(comm, rank);
      unisono_comm_destroy(comm);
    });
  }
}

TEST(CCommunicators, RanksMeetInAStoreOfCallbacks) {
  Table table;
  const unisono_store store = store_of(&table);
  const unisono_init_options options = bounded();
  for (const char* name : {"first", "second"}) {
    run_joined(3, [&](int rank, unisono_comm** comm) {
      return unisono_join(&store, name, rank, 3, &options, comm);
    });
  }
}

TEST(CCommunicators, TheOrderOfAJobIsThatOfItsReductions) {
  Table table;
  const unisono_store store = store_of(&table);
  unisono_init_options options = bounded();
  options.order = UNISONO_ORDER_EXACT;
  run_joined(
      3,
      [&](int rank, unisono_comm** comm) {
        return unisono_join(&store, "job", rank, 3, &options, comm);
      },
      [](unisono_comm* comm, int rank) {
        const float addends[] = {1.0F, 0x1p-40F, -1.0F};  // in the canonical tree: 0
        float sum = addends[rank];
        EXPECT_TRUE(is_ok(
            unisono_all_reduce(comm, &sum, &sum, 1, UNISONO_FLOAT32, UNISONO_OP_SUM, nullptr)));
        EXPECT_EQ(sum, 0x1p-40F);
      });
  options.order = static_cast<unisono_order>(3);
  unisono_comm* comm = nullptr;
  EXPECT_TRUE(
      is_code(unisono_join(&store, "other", 0, 1, &options, &comm), UNISONO_INVALID_ARGUMENT));
}

TEST(CCommunicators, AStoreThatFailsIsToldOf) {
  unisono_store store = UNISONO_STORE_INIT;
  unisono_comm* comm = nullptr;
  const unisono_init_options options = bounded();
  EXPECT_TRUE(
      is_code(unisono_join(&store, "name", 0, 2, &options, &comm), UNISONO_INVALID_ARGUMENT));
  store.set = [](void*, const char*, const void*, std::size_t) { return 7; };
  store.get = [](void*, const char*, std::int64_t, unisono_store_value*) { return 8; };
  EXPECT_TRUE(is_code(unisono_join(&store, "name", 0, 2, &options, &comm), UNISONO_RENDEZVOUS));
  EXPECT_THAT(unisono_last_error(), HasSubstr("set returned 7"));
  // More than there is memory for: no exception passes the store's function.
  store.set = [](void*, const char*, const void*, std::size_t) { return 0; };
  store.get = [](void*, const char*, std::int64_t, unisono_store_value* value) {
    unisono_store_return(value, "x", SIZE_MAX);
    return 0;
  };
  unisono_init_options brief = bounded();
  brief.timeout_ms = 300;
  EXPECT_TRUE(is_code(unisono_join(&store, "name", 1, 2, &brief, &comm), UNISONO_RENDEZVOUS));
  EXPECT_THAT(unisono_last_error(), HasSubstr("no memory"));
  EXPECT_TRUE(
      is_code(unisono_join(nullptr, "name", 0, 2, &options, &comm), UNISONO_INVALID_ARGUMENT));
  EXPECT_TRUE(
      is_code(unisono_join(&store, nullptr, 0, 2, &options, &comm), UNISONO_INVALID_ARGUMENT));
  EXPECT_EQ(comm, nullptr);
}

TEST(CCommunicators, RanksMeetByUniqueIdsOfWhichSeveralAreUsedAtOnce) {
  const unisono_init_options options = bounded();
  unisono_unique_id ids[2];
  for (unisono_unique_id& id : ids) ASSERT_TRUE(is_ok(unisono_unique_id_make(&id)));
  EXPECT_NE(std::memcmp(&ids[0], &ids[1], sizeof ids[0]), 0);
  std::vector<std::jthread> jobs;
  for (const unisono_unique_id& id : ids) {
    jobs.emplace_back([&] {
      run_joined(2, [&](int rank, unisono_comm** comm) {
        return unisono_join_by_id(&id, rank, 2, &options, comm);
      });
    });
  }
}

// The sockets of the id are the parent's, and the children's have gone with the fork.
TEST(CCommunicators, ProcessesMeetByAnIdThatTheParentMadeBeforeRankZeroHasJoined) {
  if (UNISONO_THREAD_SANITIZER == 1) {
    GTEST_SKIP() << "no threads in children of threads there, as an arbiter of another test may be";
  }
  const unisono_init_options options = bounded();
  unisono_unique_id id;
  ASSERT_TRUE(is_ok(unisono_unique_id_make(&id)));
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  unisono_comm* comm = nullptr;
  if (child == 0) {
    EXPECT_TRUE(is_code(unisono_join_by_id(&id, 0, 2, &options, &comm), UNISONO_INVALID_ARGUMENT));
    EXPECT_TRUE(is_ok(unisono_join_by_id(&id, 1, 2, &options, &comm)));
    expect_sum(comm);
    unisono_comm_destroy(comm);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  EXPECT_TRUE(is_ok(unisono_join_by_id(&id, 0, 2, &options, &comm)));
  expect_sum(comm);
  unisono_comm_destroy(comm);
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(CCommunicators, AnIdServesOneJobAndIsChecked) {
  const unisono_init_options options = bounded();
  unisono_unique_id id;
  ASSERT_TRUE(is_ok(unisono_unique_id_make(&id)));
  unisono_comm* comm = nullptr;
  EXPECT_TRUE(is_ok(unisono_join_by_id(&id, 0, 1, &options, &comm)));
  unisono_comm_destroy(comm);
  EXPECT_TRUE(is_code(unisono_join_by_id(&id, 0, 1, &options, &comm), UNISONO_INVALID_ARGUMENT));
  EXPECT_THAT(unisono_last_error(), HasSubstr("has used it before"));
  unisono_init_options keyed = options;
  keyed.job_key = "0123456789abcdef";
  EXPECT_TRUE(is_code(unisono_join_by_id(&id, 0, 2, &keyed, &comm), UNISONO_INVALID_ARGUMENT));
  EXPECT_TRUE(is_code(unisono_join_by_id(&id, 2, 2, &options, &comm), UNISONO_INVALID_ARGUMENT));
  // Title, number of addresses, an address' family, the zeros at the end.
  for (const std::size_t place : {0u, 58u, 59u, 127u}) {
    unisono_unique_id damaged = id;
    damaged.bytes[place] = static_cast<char>(damaged.bytes[place] + 77);
    EXPECT_TRUE(
        is_code(unisono_join_by_id(&damaged, 1, 2, &options, &comm), UNISONO_INVALID_ARGUMENT))
        << place;
  }
}

// It looks as an id would, and leads to rank 0 by the name of another key.
TEST(CCommunicators, WhoHasADifferentKeyDoesNotGetIn) {
  unisono_unique_id id;
  ASSERT_TRUE(is_ok(unisono_unique_id_make(&id)));
  unisono_init_options options = UNISONO_INIT_OPTIONS_INIT;
  options.timeout_ms = 20'000;
  std::jthread member([&] {
    unisono_comm* comm = nullptr;
    EXPECT_TRUE(is_ok(unisono_join_by_id(&id, 0, 2, &options, &comm)));
    unisono_comm_destroy(comm);
  });
  unisono_unique_id guessed = id;
  guessed.bytes[8] = static_cast<char>(guessed.bytes[8] ^ 1);
  unisono_comm* comm = nullptr;
  EXPECT_TRUE(is_code(unisono_join_by_id(&guessed, 1, 2, &options, &comm), UNISONO_AUTHENTICATION));
  EXPECT_TRUE(is_ok(unisono_join_by_id(&id, 1, 2, &options, &comm)));
  unisono_comm_destroy(comm);
}

TEST(CCommunicators, PartsHaveTheirMembers) {
  run_ranks(4, [](unisono_comm* comm, int rank) {
    unisono_comm* half = nullptr;
    EXPECT_TRUE(is_ok(unisono_comm_split(comm, rank % 2, -rank, &half)));
    EXPECT_EQ(unisono_comm_size(half), 2);
    EXPECT_EQ(unisono_comm_rank(half), rank < 2 ? 1 : 0);
    expect_sum(half);
    unisono_comm* none = half;
    EXPECT_TRUE(is_ok(unisono_comm_split(comm, rank == 0 ? -1 : 0, 0, &none)));
    EXPECT_EQ(none == nullptr, rank == 0);
    EXPECT_EQ(unisono_comm_size(none), rank == 0 ? 0 : 3);
    EXPECT_EQ(unisono_comm_rank(nullptr), -1);
    unisono_comm_destroy(none);
    const std::int32_t ranks[] = {3, 1};
    unisono_comm* pair = nullptr;
    EXPECT_TRUE(is_ok(unisono_comm_subset(comm, ranks, 2, &pair)));
    EXPECT_EQ(unisono_comm_rank(pair), rank == 3 ? 0 : rank == 1 ? 1 : -1);
    unisono_comm_destroy(pair);
    unisono_comm* copy = nullptr;
    EXPECT_TRUE(is_ok(unisono_comm_duplicate(comm, &copy)));
    unisono_comm_destroy(half);
    expect_sum(copy);
    unisono_comm_close(copy);
    EXPECT_TRUE(is_code(unisono_barrier(copy, nullptr), UNISONO_CLOSED));
    unisono_comm_destroy(copy);
    EXPECT_TRUE(is_code(unisono_comm_split(comm, 0, 0, nullptr), UNISONO_INVALID_ARGUMENT));
  });
}

TEST(CCommunicators, SurvivorsGoOn) {
  run_ranks(3, [](unisono_comm* comm, int rank) {
    unisono_comm* whole = nullptr;
    EXPECT_TRUE(is_ok(unisono_comm_duplicate(comm, &whole)));
    if (rank == 1) {
      unisono_comm_abort(whole, "one goes");
    } else {
      EXPECT_FALSE(is_ok(unisono_barrier(whole, nullptr)));
      std::int32_t had_begun = -1;
      EXPECT_EQ(unisono_last_error_number(&had_begun), 0) << "the first operation of it";
      EXPECT_TRUE(had_begun == 0 || had_begun == 1);
    }
    unisono_comm* left = nullptr;
    EXPECT_TRUE(is_ok(unisono_comm_shrink(whole, 0, &left)));
    EXPECT_EQ(unisono_comm_size(left), 3);
    EXPECT_EQ(unisono_comm_parent_failed_in(left, nullptr), 0);
    std::int32_t had_begun = -1;
    EXPECT_EQ(unisono_comm_parent_failed_in(comm, &had_begun), -1);
    EXPECT_EQ(had_begun, 0);
    unisono_comm_destroy(whole);
    expect_sum(left);
    unisono_comm_destroy(left);
    EXPECT_TRUE(is_code(unisono_comm_shrink(comm, -1, &left), UNISONO_INVALID_ARGUMENT));
    EXPECT_TRUE(is_code(unisono_comm_shrink(comm, 0, nullptr), UNISONO_INVALID_ARGUMENT));
    EXPECT_TRUE(is_code(unisono_comm_shrink(nullptr, 0, &left), UNISONO_INVALID_ARGUMENT));
    expect_sum(comm);
  });
}

TEST(CCommunicators, AbortNamesTheRankAtFault) {
  run_ranks(3, [](unisono_comm* comm, int rank) {
    unisono_comm* copy = nullptr;
    EXPECT_TRUE(is_ok(unisono_comm_duplicate(comm, &copy)));
    if (rank == 0) {
      EXPECT_TRUE(is_code(unisono_comm_abort_for(copy, "of no rank", 3), UNISONO_INVALID_ARGUMENT));
      EXPECT_TRUE(is_code(unisono_comm_abort_for(nullptr, "", 2), UNISONO_INVALID_ARGUMENT));
      EXPECT_TRUE(is_ok(unisono_comm_abort_for(copy, "rank 2 is lost", 2)));
    } else {
      EXPECT_TRUE(is_code(unisono_barrier(copy, nullptr), UNISONO_ABORTED));
      EXPECT_EQ(unisono_last_error_rank(), 2);
      EXPECT_THAT(unisono_last_error(), HasSubstr("rank 2 is lost"));
    }
    unisono_comm_destroy(copy);
    expect_sum(comm);
  });
}

TEST(CCommunicators, GrowByANewcomer) {
  Table table;
  const unisono_store store = store_of(&table);
  std::thread newcomer([&] {
    unisono_comm* comm = nullptr;
    unisono_init_options options = UNISONO_INIT_OPTIONS_INIT;
    options.timeout_ms = 20'000;
    EXPECT_TRUE(is_ok(unisono_rejoin(&store, "group", 0, &options, &comm)));
    expect_sum(comm);
    unisono_comm_destroy(comm);
  });
  run_ranks(2, [&](unisono_comm* comm, int rank) {
    unisono_comm* grown = nullptr;
    unisono_grow_options options = UNISONO_GROW_OPTIONS_INIT;
    EXPECT_TRUE(is_ok(unisono_comm_grow(comm, &store, "another group", &options, &grown)));
    EXPECT_EQ(grown, nullptr);
    options.wait_ms = 20'000;
    options.key = -rank;
    EXPECT_TRUE(is_ok(unisono_comm_grow(comm, &store, "group", &options, &grown)));
    EXPECT_EQ(unisono_comm_size(grown), 3);
    EXPECT_EQ(unisono_comm_rank(grown), rank == 1 ? 0 : 1);
    expect_sum(grown);
    unisono_comm_destroy(grown);
    expect_sum(comm);
    EXPECT_TRUE(
        is_code(unisono_comm_grow(comm, nullptr, nullptr, nullptr, &grown), UNISONO_UNSUPPORTED));
    EXPECT_TRUE(is_code(unisono_comm_grow(comm, nullptr, "group", nullptr, &grown),
                        UNISONO_INVALID_ARGUMENT));
    options.wait_ms = -1;
    EXPECT_TRUE(is_code(unisono_comm_grow(comm, &store, "group", &options, &grown),
                        UNISONO_INVALID_ARGUMENT));
    EXPECT_TRUE(is_code(unisono_comm_grow(comm, &store, "group", nullptr, nullptr),
                        UNISONO_INVALID_ARGUMENT));
  });
  newcomer.join();
}

TEST(CCommunicators, TextsFitTheirRoom) {
  run_ranks(2, [](unisono_comm* comm, int rank) {
    char text[200] = "x";
    const std::size_t length = unisono_comm_describe(comm, text, sizeof text);
    EXPECT_EQ(length, std::strlen(text));
    EXPECT_THAT(text, StartsWith("rank " + std::to_string(rank) + " of 2"));
    char start[5] = "xxxx";
    EXPECT_EQ(unisono_comm_describe(comm, start, sizeof start), length);
    EXPECT_STREQ(start, "rank");
    EXPECT_EQ(unisono_comm_describe(comm, nullptr, 0), length);
    EXPECT_GT(unisono_comm_host_of(comm, 1, text, sizeof text), 0u);
    EXPECT_EQ(unisono_comm_host_of(comm, 2, text, sizeof text), 0u);
    EXPECT_GT(unisono_comm_explain(comm, UNISONO_ALL_REDUCE, 1 << 20, text, sizeof text), 0u);
    EXPECT_EQ(unisono_comm_explain(comm, static_cast<unisono_collective>(18), 1, text, 1), 0u);
    EXPECT_EQ(unisono_comm_describe(nullptr, text, sizeof text), 0u);
  });
}

int fail_on_rank_1(void*, unisono_comm* comm) {
  if (unisono_comm_rank(comm) == 1) return 3;
  return unisono_barrier(comm, nullptr) == UNISONO_OK ? 4 : 5;
}

TEST(CCommunicators, ABodyThatFailsNamesItsRank) {
  unisono_spawn_options options = UNISONO_SPAWN_OPTIONS_INIT;
  options.timeout_ms = 20'000;
  const unisono_code code = unisono_spawn(2, fail_on_rank_1, nullptr, &options);
  EXPECT_TRUE(is_code(code, UNISONO_ABORTED));
  EXPECT_THAT(unisono_last_error(), HasSubstr("returned 3"));
  EXPECT_EQ(unisono_last_error_rank(), 1);
  EXPECT_TRUE(is_code(unisono_spawn(2, nullptr, nullptr, nullptr), UNISONO_INVALID_ARGUMENT));
  EXPECT_TRUE(is_code(unisono_spawn(0, call_body, nullptr, nullptr), UNISONO_INVALID_ARGUMENT));
}

// Rank 0 gives up for a reason of its own, after it has handled a failure that rank 1 was named
// for.
int handle_then_fail(void*, unisono_comm* comm) {
  char words[64] = {};
  if (unisono_comm_rank(comm) == 1) {
    unisono_send(comm, words, 64, UNISONO_UINT8, 0, 7, nullptr);
    return unisono_barrier(comm, nullptr) == UNISONO_OK ? 0 : 1;
  }
  unisono_receive(comm, words, 4, UNISONO_UINT8, 1, 7, nullptr, nullptr);
  if (unisono_last_error_rank() != 1) return 1;
  return unisono_barrier(comm, nullptr) == UNISONO_OK ? 5 : 1;
}

TEST(CCommunicators, ABodyThatHasHandledAnothersFailureNamesItself) {
  const unisono_code code = unisono_spawn(2, handle_then_fail, nullptr, nullptr);
  EXPECT_TRUE(is_code(code, UNISONO_ABORTED));
  EXPECT_THAT(unisono_last_error(), HasSubstr("returned 5"));
  EXPECT_EQ(unisono_last_error_rank(), 0);
}

TEST(CCommunicators, RefuseOptionsOfSpawnThatMeanNothing) {
  const auto spawned_with = [](void (*set)(unisono_spawn_options*)) {
    unisono_spawn_options options = UNISONO_SPAWN_OPTIONS_INIT;
    set(&options);
    return unisono_spawn(2, call_body, nullptr, &options);
  };
  EXPECT_TRUE(is_code(spawned_with([](auto* options) { options->device_count = 1; }),
                      UNISONO_INVALID_ARGUMENT));
  EXPECT_TRUE(is_code(spawned_with([](auto* options) { options->processes = 2; }),
                      UNISONO_INVALID_ARGUMENT));
  EXPECT_THAT(unisono_last_error(), HasSubstr("`processes`"));
}

int add_pids(void*, unisono_comm* comm) {
  std::int64_t own = getpid();
  std::int64_t all[3];
  if (unisono_all_gather(comm, &own, all, 1, UNISONO_INT64, nullptr) != UNISONO_OK) return 1;
  return all[0] != all[1] && all[1] != all[2] && all[0] != all[2] ? 0 : 2;
}

int die_on_rank_1(void*, unisono_comm* comm) {
  if (unisono_comm_rank(comm) == 1) raise(SIGKILL);
  return unisono_barrier(comm, nullptr) == UNISONO_OK ? 0 : 5;
}

// In a process that has made no engine. Ends it with the code that unisono_spawn() returned, and
// 100 more where that does not blame `blamed`.
[[noreturn]] void spawn_processes(int (*body)(void*, unisono_comm*), int blamed) {
  unisono_spawn_options options = UNISONO_SPAWN_OPTIONS_INIT;
  options.timeout_ms = 20'000;
  options.processes = 1;
  const unisono_code code = unisono_spawn(3, body, nullptr, &options);
  std::exit(unisono_last_error_rank() == blamed ? code : 100 + code);
}

TEST(CCommunicatorsDeathTest, RanksMayBeProcesses) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(spawn_processes(add_pids, UNISONO_NO_RANK), testing::ExitedWithCode(UNISONO_OK), "");
  EXPECT_EXIT(spawn_processes(fail_on_rank_1, 1), testing::ExitedWithCode(UNISONO_RANK_FAILED), "");
  EXPECT_EXIT(spawn_processes(die_on_rank_1, 1), testing::ExitedWithCode(UNISONO_RANK_FAILED), "");
}

TEST(CCommunicators, EachThreadHasItsOwnLastError) {
  EXPECT_TRUE(is_code(unisono_barrier(nullptr, nullptr), UNISONO_INVALID_ARGUMENT));
  std::thread([] {
    EXPECT_EQ(unisono_last_error_code(), UNISONO_OK);
    EXPECT_STREQ(unisono_last_error(), "");
    EXPECT_EQ(unisono_last_error_rank(), UNISONO_NO_RANK);
    EXPECT_EQ(unisono_last_error_number(nullptr), -1);
  }).join();
  EXPECT_EQ(unisono_last_error_code(), UNISONO_INVALID_ARGUMENT);
  EXPECT_STREQ(unisono_last_error_operation(), "barrier");
}

TEST(CCommunicators, InitIsAWorldOfOneWithoutALauncher) {
  unisono_init_options options = UNISONO_INIT_OPTIONS_INIT;
  options.rendezvous = "alone://";
  unisono_comm* comm = nullptr;
  ASSERT_TRUE(is_ok(unisono_init(&options, &comm)));
  EXPECT_EQ(unisono_comm_size(comm), 1);
  unisono_comm* second = nullptr;
  EXPECT_TRUE(is_code(unisono_init(&options, &second), UNISONO_INVALID_ARGUMENT));
  unisono_comm_destroy(comm);
  ASSERT_TRUE(is_ok(unisono_init(&options, &comm)));
  unisono_comm_destroy(comm);
  EXPECT_TRUE(is_code(unisono_init(&options, nullptr), UNISONO_INVALID_ARGUMENT));
  options.transport = "pigeon";
  EXPECT_TRUE(is_code(unisono_init(&options, &comm), UNISONO_INVALID_ARGUMENT));
  EXPECT_THAT(unisono_last_error(), HasSubstr("pigeon"));
}

}  // namespace
}  // namespace unisono::test
