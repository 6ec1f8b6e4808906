// Ranks as threads: every kind of rendezvous and every reason to refuse one.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <thread>
#include <vector>

#include "rendezvous/arbiter/arbiter_server.h"
#include "rendezvous/meeting/contact.h"
#include "rendezvous/meeting/joiner.h"
#include "rendezvous/messages/arbiter_connection.h"
#include "rendezvous/sockets/sockets.h"
#include "rendezvous_support.h"
#include "tests/support/log_guard.h"
#include "tests/support/map_store.h"
#include "tests/support/other_user.h"
#include "tests/support/try_limits.h"
#include "unisono/rendezvous.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using test::MapStore;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

class BrokenStore : public Store {
 public:
  void set(std::string_view, std::string_view) override { throw std::runtime_error("no disk"); }
  std::string get(std::string_view, milliseconds) override { throw 42; }
};

RendezvousPoint store_point(Store* store) {
  RendezvousPoint point;
  point.kind = RendezvousPoint::Kind::kStore;
  point.store = store;
  return point;
}

TEST(Join, WorldOfOneNeedsNobody) {
  auto outcomes = meet(world_of({}, 1));
  expect_one_world(outcomes);
  outcomes[0].client->report_failure({});
  const rendezvous::ArbiterNews news = outcomes[0].client->take_news();
  EXPECT_TRUE(news.decisions.empty());
  EXPECT_TRUE(news.questions.empty());
  outcomes[0].client->leave();
}

TEST(Join, AloneWithSeveralRanksIsAnError) {
  const auto outcomes = meet({{{}, 2, test_member(1), Clock::now() + kPatience}});
  EXPECT_THAT(outcomes[0].status.message(), HasSubstr("tcp://host:port"));
}

// As a user whom the new namespace does not map.
[[noreturn]] void join_unmapped(const RendezvousPoint& point) {
  test::enter_user_namespace();
  const Result<Joined> joined =
      join_rendezvous(point, {2, test_member(1), {}}, Clock::now() + kPatience);
  std::fprintf(stderr, "%s\n", joined.status().message().c_str());
  ::_exit(joined.status().code() == ErrorCode::kAuthentication ? 0 : 1);
}

// Nobody is waited for who would be refused.
TEST(Join, OfAUserWhomTheNamespaceDoesNotMapIsRefused) {
  if (!test::may_make_user_namespaces())
    GTEST_SKIP() << "SKIPPED: no user namespaces may be made here";
  for (const RendezvousPoint& point : {abstract_point(), file_point()}) {
    EXPECT_EXIT(join_unmapped(point), testing::ExitedWithCode(0), "UNISONO_JOB_KEY");
  }
}

// Until rank 0 gives up: the others are threads that have to be made, and to arrive, by then.
const std::vector<milliseconds> kArrivals{milliseconds(1500), milliseconds(4000),
                                          milliseconds(10'000)};

class JoinAt : public testing::TestWithParam<const char*> {
 protected:
  RendezvousPoint point() {
    const std::string_view kind = GetParam();
    if (kind == "abstract") return abstract_point();
    if (kind == "tcp") return tcp_point();
    if (kind == "file") return file_point();
    return store_point(&store_);
  }
  MapStore store_;
};

TEST_P(JoinAt, AllRanksGetTheSameWorld) {
  auto outcomes = meet(world_of(point(), 8));
  expect_one_world(outcomes);
  leave_all(&outcomes);
}

// Who waits hears from rank 0 that it lives.
TEST_P(JoinAt, ARankMayComeLaterThanAnySilence) {
  RendezvousPoint place = point();
  place.silence = milliseconds(1500);
  std::vector<Candidate> early = world_of(place, 3);
  std::vector<Candidate> late{early.back()};
  early.pop_back();
  auto waiting = std::async(std::launch::async, [&] { return meet(early); });
  std::this_thread::sleep_for(2 * place.silence);
  std::vector<Outcome> last = meet(late);
  std::vector<Outcome> all = waiting.get();
  all.push_back(std::move(last.front()));
  expect_one_world(all);
  leave_all(&all);
}

TEST_P(JoinAt, TheSamePlaceServesTheNextJobs) {
  const RendezvousPoint place = point();
  std::string previous;
  for (int job = 0; job < 3; ++job) {
    auto outcomes = meet(world_of(place, 3));
    expect_one_world(outcomes);
    EXPECT_NE(outcomes[0].client->world().job_id, previous);
    previous = outcomes[0].client->world().job_id;
    // Rank 0 leaves first: its arbiter goes on for the others while the next job meets.
    outcomes[0].client->leave();
    auto next = meet(world_of(place, 3));
    expect_one_world(next);
    leave_all(&next);
    leave_all(&outcomes);
  }
}

TEST_P(JoinAt, MissingRanksAreListedForEveryone) {
  test::try_limits(kArrivals, [&](milliseconds arrival) {
    auto candidates = world_of(point(), 8, arrival);
    for (const int gone : {7, 5, 2}) candidates.erase(candidates.begin() + gone);
    for (const Outcome& outcome : meet(candidates)) {
      EXPECT_EQ(outcome.status.code(), ErrorCode::kRendezvous);
      EXPECT_THAT(outcome.status.message(),
                  HasSubstr("ranks 2, 5 and 7 of 8 did not arrive within "));
    }
  });
}

TEST_P(JoinAt, RankGivenTwiceEndsTheRendezvous) {
  auto candidates = world_of(point(), 3);
  candidates[2].member.rank = 1;
  candidates[2].member.pid = 4242;
  for (const Outcome& outcome : meet(candidates)) {
    EXPECT_EQ(outcome.status.code(), ErrorCode::kRendezvous);
    EXPECT_THAT(outcome.status.message(),
                AllOf(HasSubstr("rank 1 was given twice"), HasSubstr("host testhost, pid 4242"),
                      HasSubstr(std::to_string(::getpid()))));
  }
}

TEST_P(JoinAt, DifferingWorldSizesEndTheRendezvous) {
  auto candidates = world_of(point(), 3);
  candidates[1].size = 4;
  for (const Outcome& outcome : meet(candidates)) {
    EXPECT_EQ(outcome.status.code(), ErrorCode::kRendezvous);
    EXPECT_THAT(outcome.status.message(), AllOf(HasSubstr("rank 1"), HasSubstr("4 ranks")));
  }
}

TEST_P(JoinAt, DifferingSettingsEndTheRendezvous) {
  auto candidates = world_of(point(), 3);
  candidates[1].member.settings = "transport=tcp";
  for (const Outcome& outcome : meet(candidates)) {
    EXPECT_EQ(outcome.status.code(), ErrorCode::kMismatch);
    EXPECT_THAT(outcome.status.message(),
                AllOf(HasSubstr("in transport,"), HasSubstr("'auto'"), HasSubstr("'tcp'")));
  }
}

TEST_P(JoinAt, WithoutRankZeroTheOthersSayThatTheyDidNotReachIt) {
  auto candidates = world_of(point(), 2, milliseconds(200));
  candidates.erase(candidates.begin());
  const auto outcomes = meet(candidates);
  EXPECT_EQ(outcomes[0].status.code(), ErrorCode::kRendezvous);
  EXPECT_THAT(outcomes[0].status.message(), HasSubstr("rank 1 did not reach rank 0 at"));
}

TEST_P(JoinAt, RankZeroGivingUpEarlyEndsTheRendezvousForAll) {
  test::try_limits(kArrivals, [&](milliseconds arrival) {
    auto candidates = world_of(point(), 3);
    candidates.pop_back();
    candidates[0].deadline = Clock::now() + arrival;
    for (const Outcome& outcome : meet(candidates)) {
      EXPECT_THAT(outcome.status.message(), HasSubstr("rank 2 of 3 did not arrive"));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Places, JoinAt, testing::Values("abstract", "tcp", "file", "store"),
                         [](const auto& info) { return std::string(info.param); });

// Rendezvous points that hold a text that rank 0 has written.
class JoinPublished : public JoinAt {
 protected:
  RendezvousPoint point_with(const JobKey& key) {
    RendezvousPoint point = JoinAt::point();
    point.has_key = true;
    point.key = key;
    return point;
  }
  std::string published(const RendezvousPoint& point) {
    if (point.kind == RendezvousPoint::Kind::kStore) return store_.get("unisono/rendezvous", {});
    std::ifstream file(point.name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Rank 0 with `first` meets nobody but a rank 1 with `second`, which is refused at once.
  Status refusal(const RendezvousPoint& first, const RendezvousPoint& second) {
    Status refused;
    test::try_limits(kArrivals, [&](milliseconds arrival) {
      auto candidates = world_of(first, 2);
      candidates[0].deadline = Clock::now() + arrival;
      candidates[1].point = second;
      const auto outcomes = meet(candidates);
      EXPECT_THAT(outcomes[0].status.message(), HasSubstr("rank 1 of 2 did not arrive"));
      EXPECT_EQ(outcomes[1].status.code(), ErrorCode::kAuthentication);
      EXPECT_THAT(outcomes[1].status.message(), HasSubstr("UNISONO_JOB_KEY"));
      refused = outcomes[1].status;
    });
    return refused;
  }
};

TEST_P(JoinPublished, AGivenKeyIsNeverWritten) {
  const RendezvousPoint point = point_with(test_key());
  auto candidates = world_of(point, 2, milliseconds(200));
  candidates.pop_back();
  meet(candidates);  // fails, and leaves what rank 0 wrote
  EXPECT_THAT(published(point), AllOf(HasSubstr("job "), Not(HasSubstr("key "))));
  EXPECT_THAT(published(point), Not(HasSubstr(std::string(test_key().to_hex().view()))));
}

TEST_P(JoinPublished, AGivenKeyIsTheJobs) {
  auto outcomes = meet(world_of(point_with(test_key()), 3));
  expect_one_world(outcomes);
  EXPECT_EQ(outcomes[2].client->world().key.to_hex(), test_key().to_hex());
  leave_all(&outcomes);
}

TEST_P(JoinPublished, AnotherKeyIsRefusedByName) {
  RendezvousPoint other = point_with(test_key());
  const RendezvousPoint first = other;
  other.key = JobKey::random();
  EXPECT_THAT(refusal(first, other).message(), HasSubstr("refused this rank's proof"));
}

TEST_P(JoinPublished, NoKeyWhereRankZeroHasOneIsRefusedByName) {
  const RendezvousPoint first = point_with(test_key());
  RendezvousPoint none = first;
  none.has_key = false;
  EXPECT_THAT(refusal(first, none).message(), HasSubstr("this rank has none"));
}

TEST_P(JoinPublished, AKeyWhereRankZeroHasNoneIsRefusedByName) {
  const RendezvousPoint keyed = point_with(test_key());
  RendezvousPoint first = keyed;
  first.has_key = false;
  EXPECT_THAT(refusal(first, keyed).message(), HasSubstr("rank 0 has no job key"));
}

INSTANTIATE_TEST_SUITE_P(Places, JoinPublished, testing::Values("file", "store"),
                         [](const auto& info) { return std::string(info.param); });

// A rank of another host finds no UNIX socket.
TEST(Join, FileAndKeyLeadRanksOfOtherHostsOverTcp) {
  RendezvousPoint point = file_point(), remote = file_point();
  point.has_key = remote.has_key = true;
  point.key = remote.key = test_key();
  point.interface_address = "127.0.0.1";
  auto candidates = world_of(point, 2);
  std::vector<Outcome> first;
  std::thread host([&] { first = meet({candidates[0]}); });
  EXPECT_TRUE(eventually([&] {
    auto contact = read_contact_file(point.name);
    if (contact) contact->unix_name.clear();
    return contact && write_contact_file(remote.name, *contact);
  }));
  candidates[1].point = remote;
  candidates[1].point.key = JobKey::random();
  const auto stranger = meet({candidates[1]});
  EXPECT_EQ(stranger[0].status.code(), ErrorCode::kAuthentication);
  EXPECT_THAT(stranger[0].status.message(), HasSubstr("UNISONO_JOB_KEY"));
  candidates[1].point = remote;
  auto second = meet({candidates[1]});
  host.join();
  ASSERT_TRUE(first[0].status) << first[0].status.message();
  ASSERT_TRUE(second[0].status) << second[0].status.message();
  EXPECT_EQ(second[0].client->world().key.to_hex(), test_key().to_hex());
  leave_all(&second);
  leave_all(&first);
}

TEST(Join, WhoWaitsInVainIsSaidOnceBeforeTheDeadline) {
  test::LogGuard log;
  for (const Rank alone : {1, 0}) {
    auto candidates = world_of(abstract_point(), 2, milliseconds(1000));
    candidates[static_cast<std::size_t>(alone)].point.warn_after = milliseconds(1);
    candidates.erase(candidates.begin() + (1 - alone));
    EXPECT_EQ(meet(candidates)[0].status.code(), ErrorCode::kRendezvous);
  }
  // Rank 0 itself may not have come yet.
  const std::string missing = "not arrived after";
  const std::string unreached = "rank 1 has not reached rank 0 at";
  log.expect(missing);
  log.expect(unreached);
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr(unreached), HasSubstr(missing)));
}

TEST(Join, SixtyFourThreadsMeet) {
  auto outcomes = meet(world_of(abstract_point(), 64));
  expect_one_world(outcomes);
  leave_all(&outcomes);
}

TEST(Join, LargeTableReachesEveryRank) {
  auto candidates = world_of(tcp_point(), 64);
  for (Candidate& candidate : candidates) candidate.member.addresses.resize(4096, 'a');
  auto outcomes = meet(candidates);
  for (const Outcome& outcome : outcomes) {
    ASSERT_TRUE(outcome.status) << outcome.status.message();
    EXPECT_EQ(outcome.client->world().members[63].addresses.size(), 4096u);
  }
  leave_all(&outcomes);
}

TEST(Join, RankOutOfRangeIsRefusedBeforeAnythingIsSent) {
  const auto outcomes = meet({{abstract_point(), 2, test_member(2), Clock::now() + kPatience}});
  EXPECT_EQ(outcomes[0].status.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(outcomes[0].status.message(), HasSubstr("rank 2 is not within 0 to 1"));
}

TEST(Join, WrongKeyIsNamedAndTheRendezvousGoesOn) {
  test::try_limits(kArrivals, [](milliseconds arrival) {
    auto candidates = world_of(tcp_point(), 2);
    candidates[1].point.key = JobKey::random();
    candidates[0].deadline = Clock::now() + arrival;
    const auto outcomes = meet(candidates);
    EXPECT_EQ(outcomes[1].status.code(), ErrorCode::kAuthentication);
    EXPECT_THAT(outcomes[1].status.message(), HasSubstr("UNISONO_JOB_KEY"));
    EXPECT_THAT(outcomes[0].status.message(), HasSubstr("rank 1 of 2 did not arrive"));
  });
}

TEST(Join, TcpWithoutKeyIsRefused) {
  RendezvousPoint point = tcp_point();
  point.has_key = false;
  for (const Outcome& outcome : meet(world_of(point, 2))) {
    EXPECT_EQ(outcome.status.code(), ErrorCode::kAuthentication);
    EXPECT_THAT(outcome.status.message(), HasSubstr("openssl rand -hex 32"));
  }
}

TEST(Join, PortInUseIsNamed) {
  auto taken = listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(taken.has_value());
  RendezvousPoint point = tcp_point();
  point.port = taken->port;
  const auto outcomes = meet({world_of(point, 2)[0]});
  EXPECT_EQ(outcomes[0].status.code(), ErrorCode::kRendezvous);
  EXPECT_THAT(outcomes[0].status.message(),
              AllOf(HasSubstr("127.0.0.1:" + std::to_string(taken->port)),
                    HasSubstr("Address already in use"), HasSubstr("UNISONO_PORT")));
}

TEST(Join, MeetsOverIpv6Loopback) {
  RendezvousPoint point = tcp_point();
  point.name = "::1";
  if (!listen_tcp("::1", 0)) GTEST_SKIP() << "this machine has no IPv6 loopback";
  auto outcomes = meet(world_of(point, 2));
  expect_one_world(outcomes);
  leave_all(&outcomes);
}

TEST(Join, KeyOfATcpRendezvousIsTheGivenOne) {
  auto outcomes = meet(world_of(tcp_point(), 2));
  expect_one_world(outcomes);
  EXPECT_EQ(outcomes[1].client->world().key.to_hex(), test_key().to_hex());
  leave_all(&outcomes);
}

TEST(Join, FileOfADeadJobDoesNotMatter) {
  const RendezvousPoint point = file_point();
  Contact stale;
  stale.job_id = random_id();
  stale.has_key = true;
  stale.key = JobKey::random();
  stale.unix_name = "unisono-gone";
  // Something else listens by now where the dead job did, and never answers.
  auto squatter = listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(squatter.has_value());
  stale.tcp = {{"127.0.0.1", tcp_point().port}};
  ASSERT_TRUE(write_contact_file(point.name, stale));
  auto outcomes = meet(world_of(point, 4));
  expect_one_world(outcomes);
  EXPECT_FALSE(std::filesystem::exists(point.name)) << "rank 0 removes its file";
  leave_all(&outcomes);
}

TEST(Join, FileLeadingToAnArbiterOfAnotherKeyIsReadAgain) {
  // Another job's arbiter listens at the address of the stale file and refuses the key.
  const RendezvousPoint other = tcp_point();
  auto other_job = world_of(other, 2, milliseconds(500));
  other_job.pop_back();
  const RendezvousPoint point = file_point();
  Contact stale;
  stale.job_id = random_id();
  stale.has_key = true;
  stale.key = JobKey::random();
  stale.tcp = {{other.name, other.port}};
  ASSERT_TRUE(write_contact_file(point.name, stale));
  auto candidates = world_of(point, 2);
  candidates.push_back(other_job[0]);
  auto outcomes = meet(candidates);
  EXPECT_FALSE(outcomes.back().status);
  outcomes.pop_back();
  expect_one_world(outcomes);
  leave_all(&outcomes);
}

TEST(Join, FileOfAJobWithoutAKeyIsNoneForARankThatHasOne) {
  RendezvousPoint point = file_point();
  point.has_key = true;
  point.key = test_key();
  Contact contact;
  contact.job_id = random_id();
  contact.has_key = true;
  contact.tcp = {{"127.0.0.1", tcp_point().port}};
  ASSERT_TRUE(write_contact_file(point.name, contact));
  const auto outcomes = meet({world_of(point, 2, milliseconds(100))[1]});
  EXPECT_THAT(outcomes[0].status.message(), HasSubstr("rank 0 has no job key, this rank has one"));
}

TEST(Join, NoStoreIsAnError) {
  const auto outcomes = meet({world_of(store_point(nullptr), 2)[0]});
  EXPECT_EQ(outcomes[0].status.code(), ErrorCode::kInvalidArgument);
}

TEST(Join, FileInADirectoryThatDoesNotExistIsNamed) {
  RendezvousPoint point = file_point();
  point.name = "/nonexistent/unisono/meet";
  const auto outcomes = meet({world_of(point, 2)[0]});
  EXPECT_THAT(outcomes[0].status.message(), HasSubstr("/nonexistent/unisono/meet"));
}

std::size_t threads_of_arbiters() {
  std::size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    if (name == "unisono-arbiter") ++count;
  }
  return count;
}

TEST(Join, ArbitersOfANameEndWhenTold) {
  RendezvousPoint place = abstract_point();
  place.within_process = true;  // as where this is done, so that no standby takes over
  auto ended = meet(world_of(place, 2));
  auto kept = meet(world_of(abstract_point(), 2));
  ASSERT_TRUE(eventually([] { return threads_of_arbiters() == 2; }));  // of other tests: none
  end_arbiters_of(place.name);
  EXPECT_TRUE(eventually([] { return threads_of_arbiters() == 1; }));
  kept[0].client->report_failure({ErrorCode::kAborted, -1, 0, 0, "served"});
  EXPECT_EQ(await_decision(kept[1].client.get()).message, "served");
  leave_all(&kept);
  leave_all(&ended);
}

// Names in another store are other names: whoever comes late still hears why the first job failed.
TEST(Join, AFailedArbiterStaysWhenItsNameIsUsedInAnotherStore) {
  constexpr milliseconds kArbiterStays(1000);  // when it has failed
  for (int round = 0; round < 20; ++round) {
    MapStore failed_in, used_in;
    const TimePoint began = Clock::now();
    const auto early = meet({world_of(store_point(&failed_in), 2, milliseconds(10))[0]});
    ASSERT_EQ(early[0].status.code(), ErrorCode::kRendezvous);
    auto others = meet(world_of(store_point(&used_in), 2));
    expect_one_world(others);
    const auto late = meet({world_of(store_point(&failed_in), 2, kArbiterStays)[1]});
    leave_all(&others);
    if (Clock::now() - began >= kArbiterStays) continue;  // it may have gone meanwhile
    EXPECT_EQ(late[0].status.message(), early[0].status.message());
    return;
  }
  GTEST_SKIP() << "this machine is too slow to come while a failed arbiter stays";
}

TEST(Join, StoreThatThrowsIsAnErrorNotAnException) {
  BrokenStore store;
  const auto outcomes = meet(world_of(store_point(&store), 2, milliseconds(100)));
  EXPECT_THAT(outcomes[0].status.message(), HasSubstr("no disk"));
  EXPECT_THAT(outcomes[1].status.message(), HasSubstr("store failed"));
}

}  // namespace
}  // namespace unisono::rendezvous
