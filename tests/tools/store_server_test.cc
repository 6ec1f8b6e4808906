// The launcher's store: what ranks set and get, what others may send it, and what it may hold.
#include "tools/run/store_server.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "launcher.h"
#include "rendezvous/sockets/fork_guard.h"
#include "rendezvous/sockets/sockets.h"
#include "rendezvous/store/launcher_store.h"
#include "tests/support/map_store.h"
#include "tests/support/seed.h"
#include "tests/support/setting.h"
#include "unisono/unisono.hpp"

namespace unisono::run {
namespace {

using rendezvous::LauncherStore;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr milliseconds kLong = kPatience;

// A server with the loop of a supervisor around it.
class Served {
 public:
  Served() : server_(std::move(*StoreServer::start())), thread_([this] { run(); }) {}
  ~Served() {
    is_over_ = true;
    thread_.join();
  }
  const std::string& name() const { return server_.name(); }

 private:
  void run() {
    while (!is_over_) {
      pollfd polled{server_.fd(), POLLIN, 0};
      if (::poll(&polled, 1, 5) == 1) server_.serve();
    }
  }

  StoreServer server_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

TEST(StoreServer, GivesWhatWasSet) {
  const Served served;
  LauncherStore store(served.name()), other(served.name());
  EXPECT_EQ(store.get("key", milliseconds(1)), "");
  store.set("key", std::string("a\0b", 3));
  EXPECT_EQ(other.get("key", kLong), std::string("a\0b", 3));
  other.set("key", "second");
  EXPECT_EQ(store.get("key", milliseconds(0)), "second");
  const std::string longest(rendezvous::kStoreValueBytesMax, 'v');
  const std::string key(rendezvous::kStoreKeyBytesMax, 'k');
  store.set(key, longest);
  EXPECT_EQ(other.get(key, kLong), longest);
}

TEST(StoreServer, AnswersAllThatWaitForAKey) {
  const Served served;
  constexpr int kWaiting = 20;
  std::atomic<int> right{0}, begun{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kWaiting; ++i) {
    threads.emplace_back([&, i] {
      LauncherStore store(served.name());
      ++begun;
      right += store.get("key" + std::to_string(i % 2), kLong) == "value" ? 1 : 0;
    });
  }
  EXPECT_TRUE(eventually([&] { return begun == kWaiting; }));
  LauncherStore store(served.name());
  store.set("key0", "value");
  store.set("key1", "value");
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, kWaiting);
}

TEST(StoreServer, RefusesWhatIsTooLong) {
  const Served served;
  LauncherStore store(served.name());
  const std::string key(rendezvous::kStoreKeyBytesMax + 1, 'k');
  const std::string value(rendezvous::kStoreValueBytesMax + 1, 'v');
  EXPECT_THROW(store.set("", "value"), Error);
  EXPECT_THROW(store.set(key, "value"), Error);
  EXPECT_THROW(store.set("key", value), Error);
  EXPECT_THROW(store.get(key, kLong), Error);
}

TEST(StoreServer, HoldsNoMoreThanItsBound) {
  const Served served;
  LauncherStore store(served.name());
  const std::string value(rendezvous::kStoreValueBytesMax, 'v');
  const auto fill = [&] {
    for (std::size_t i = 0; i <= StoreValues::kBytesMax / value.size(); ++i) {
      store.set("key" + std::to_string(i), value);
    }
  };
  try {
    fill();
    ADD_FAILURE() << "it takes everything";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kOutOfResources);
    EXPECT_THAT(error.what(), HasSubstr("takes at most 67108864"));
  }
  // In the place of another value there is room.
  store.set("key0", "short");
  EXPECT_EQ(store.get("key0", kLong), "short");
}

TEST(StoreServer, ThatIsGoneIsToldAtOnce) {
  const std::string name = [] { return Served().name(); }();
  LauncherStore store(name);
  const TimePoint began = Clock::now();
  EXPECT_THROW(store.get("key", kLong), Error);
  EXPECT_THROW(store.set("key", "value"), Error);
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(30)) << "each asks for 20 s where it can";
}

TEST(StoreServer, HearsThatRanksHaveMet) {
  const Served served;
  const test::Setting where("UNISONO_LAUNCHER_STORE", served.name());
  const test::Setting restarts("TORCHELASTIC_RESTART_COUNT", "3");
  const test::Setting rank("RANK", "0");
  test::MapStore place;
  const auto told_in_a_job_of = [&](int size, const char* launched) {
    const test::Setting world_size("WORLD_SIZE", launched);
    std::atomic<int> told{0};
    std::vector<std::jthread> ranks;
    for (Rank each = 0; each < size; ++each) {
      ranks.emplace_back([&, each] {
        const Communicator comm = join(place, launched, each, size);
        LauncherStore own(served.name());
        told += own.get(rendezvous::met_key(3), milliseconds(1)).empty() ? 0 : 1;
      });
    }
    ranks.clear();
    return told.load();
  };
  EXPECT_EQ(told_in_a_job_of(2, "3"), 0) << "some of them";
  EXPECT_EQ(told_in_a_job_of(1, "1"), 0) << "nobody is to rejoin one alone";
  EXPECT_EQ(told_in_a_job_of(2, "2"), 2);
}

// It was started beside others, which had met before.
TEST(StoreServer, HearsNothingOfWhatARankThatRejoinsMeets) {
  const Served served;
  const test::Setting where("UNISONO_LAUNCHER_STORE", served.name());
  const test::Setting rejoins("UNISONO_REJOIN", "on");
  const test::Setting rank_name("RANK", "0"), world_size("WORLD_SIZE", "2");
  test::MapStore place;
  std::vector<std::thread> ranks;
  for (const Rank rank : {0, 1}) {
    ranks.emplace_back([&, rank] { join(place, "two", rank, 2); });
  }
  for (std::thread& rank : ranks) rank.join();
  LauncherStore store(served.name());
  EXPECT_EQ(store.get(rendezvous::met_key(0), milliseconds(1)), "");
}

// A store of another node, and what is passed on between both without a network.
class PassedOn {
 public:
  PassedOn() {
    far_.answer_others_by([this](const Asker& asker, const std::string& bytes) {
      EXPECT_EQ(asker.node, kNode);
      near_.answer(asker.question, bytes);
    });
    near_.pass_on_by([this](std::uint64_t question, const std::string& bytes) {
      if (!is_cut_) ++(bytes.empty() ? forgotten_ : asked_);
      if (is_cut_) return;
      if (bytes.empty()) return far_.forget({kNode, question});
      EXPECT_TRUE(far_.ask({kNode, question}, bytes));
    });
  }
  std::string near() const { return near_.name(); }
  std::string far() const { return far_.name(); }
  int asked() const { return asked_; }
  int forgotten() const { return forgotten_; }
  bool near_holds(const std::string& key) const { return near_.holds(key); }
  void cut() { is_cut_ = true; }
  void answer_here() { near_.pass_on_by(nullptr); }
  // As two supervisors do, until it is true.
  bool serve_until(const std::function<bool()>& is_done) {
    return eventually([&] {
      near_.serve();
      far_.serve();
      return is_done();
    });
  }

 private:
  static constexpr int kNode = 3;
  StoreServer near_ = std::move(*StoreServer::start()), far_ = std::move(*StoreServer::start());
  int asked_ = 0, forgotten_ = 0;
  bool is_cut_ = false;
};

TEST(StoreServer, OfAnotherNodePassesQuestionsOn) {
  PassedOn stores;
  std::atomic<int> right{0};
  std::thread waiting([&] { right += LauncherStore(stores.near()).get("key", kLong) == "value"; });
  EXPECT_TRUE(stores.serve_until([&] { return stores.asked() == 2; })) << "what it holds, and wait";
  std::thread setting([&] {
    LauncherStore(stores.far()).set("key", "value");
    LauncherStore(stores.near()).set("other", "from there");
    right += LauncherStore(stores.far()).get("other", kLong) == "from there";
  });
  EXPECT_TRUE(stores.serve_until([&] { return right == 2; }));
  waiting.join();
  setting.join();
}

TEST(StoreServer, OfAnotherNodeForgetsWhoHangsUp) {
  PassedOn stores;
  std::atomic<bool> is_over{false};
  std::thread asking([&] {
    EXPECT_EQ(LauncherStore(stores.near()).get("key", milliseconds(20)), "");
    is_over = true;
  });
  EXPECT_TRUE(stores.serve_until([&] { return is_over && stores.forgotten() == 1; }));
  asking.join();
}

TEST(StoreServer, OfAnotherNodeAnswersByItselfWhereNobodyElseDoes) {
  PassedOn stores;
  stores.cut();
  std::atomic<int> right{0};
  std::thread asking([&] {
    LauncherStore store(stores.near());
    store.set("key", "value");
    right += store.get("key", kLong) == "value";
  });
  // It has asked, and hears nothing.
  EXPECT_TRUE(stores.serve_until([&] { return stores.near_holds("key"); }));
  EXPECT_EQ(right, 0);
  stores.answer_here();
  EXPECT_TRUE(stores.serve_until([&] { return right == 1; }));
  asking.join();
}

// ---- Hostile bytes --------------------------------------------------------------------------

std::string framed(std::string_view rest) {
  std::string bytes(4, '\0');
  bytes[0] = static_cast<char>(rest.size());
  return bytes.append(rest);
}

// Until the server has hung up, or answered.
std::string reply_to(const std::string& name, std::string_view bytes) {
  const auto fd = rendezvous::connect_unix(name);
  if (!fd) return fd.error().message();
  EXPECT_EQ(::send(fd->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
  std::string reply;
  while (rendezvous::wait_ready(fd->get(), false, Clock::now() + kPatience)) {
    char piece[256];
    const ssize_t got = ::recv(fd->get(), piece, sizeof piece, 0);
    if (got <= 0) return reply;
    reply.append(piece, static_cast<std::size_t>(got));
  }
  return "it does not hang up";
}

TEST(StoreServer, HangsUpOnWhatIsNoQuestion) {
  const Served served;
  const std::vector<std::string> questions{
      std::string(4, '\0'),                       // no rest
      std::string("\xff\xff\xff\xff", 4),         // 4 GiB
      framed("x"),                                // neither set nor get
      framed("g"),                                // no key
      framed(std::string("g\0\0", 3)),            // an empty one
      framed(std::string("g\x05\0key", 6)),       // a key that ends too early
      framed(std::string("g\xff\xff") + "key"),   // one that is too long
      framed(std::string("g\3\0keyvalue", 11)),   // a get with a value
      framed(std::string("w\3\0keyvalue", 11)),   // one that waits
      framed(std::string("s\1\0k", 4)) + "more",  // something behind it
  };
  for (const std::string& each : questions) {
    EXPECT_EQ(reply_to(served.name(), each), "") << testing::PrintToString(each);
  }
  LauncherStore store(served.name());
  EXPECT_EQ(store.get("k", milliseconds(1)), "");
}

TEST(StoreServer, TakesAQuestionInPieces) {
  const Served served;
  const std::string question =
      *rendezvous::to_bytes({rendezvous::StoreRequest::Kind::kSet, "key", "value"});
  const auto fd = rendezvous::connect_unix(served.name());
  ASSERT_TRUE(fd);
  for (const char byte : question) ASSERT_EQ(::send(fd->get(), &byte, 1, MSG_NOSIGNAL), 1);
  LauncherStore store(served.name());
  EXPECT_EQ(store.get("key", kLong), "value");
}

// It neither turns anybody away nor wakes its loop for those that it has no room for.
TEST(StoreServer, TakesNoMoreAtOnceThanItHasRoomFor) {
  StoreServer server = std::move(*StoreServer::start(1));
  auto first = rendezvous::connect_unix(server.name());
  ASSERT_TRUE(first) << first.error().message();
  const auto second = rendezvous::connect_unix(server.name());
  ASSERT_TRUE(second) << second.error().message();
  const std::string question =
      *rendezvous::to_bytes({rendezvous::StoreRequest::Kind::kGet, "key", ""});
  ASSERT_EQ(::send(second->get(), question.data(), question.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(question.size()));
  const auto has_work = [&] {
    pollfd polled{server.fd(), POLLIN, 0};
    return ::poll(&polled, 1, 0) == 1;
  };
  for (int i = 0; i < 3; ++i) server.serve();
  EXPECT_FALSE(has_work());
  EXPECT_FALSE(rendezvous::wait_ready(second->get(), false, Clock::now()));
  first->reset();
  while (has_work()) server.serve();
  EXPECT_TRUE(rendezvous::wait_ready(second->get(), false, Clock::now()));
}

// A store with room for one client, which has asked, and another one that waits for its place.
class FullStoreServer : public testing::Test {
 protected:
  void SetUp() override {
    server_.pass_on_by([this](std::uint64_t question, const std::string&) { asked_ = question; });
    for (rendezvous::GuardedFd* client : {&first_, &second_}) {
      auto fd = rendezvous::connect_unix(server_.name());
      ASSERT_TRUE(fd) << fd.error().message();
      *client = *std::move(fd);
    }
    const std::string question =
        *rendezvous::to_bytes({rendezvous::StoreRequest::Kind::kGet, "key", ""});
    ASSERT_EQ(::send(first_.get(), question.data(), question.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(question.size()));
    while (has_work()) server_.serve();
    ASSERT_NE(asked_, 0U);
  }
  bool has_work() const {
    pollfd polled{server_.fd(), POLLIN, 0};
    return ::poll(&polled, 1, 0) == 1;
  }

  StoreServer server_ = std::move(*StoreServer::start(1));
  std::uint64_t asked_ = 0;
  rendezvous::GuardedFd first_, second_;
};

TEST_F(FullStoreServer, ListensAgainOnceAnotherNodeHasAnswered) {
  server_.answer(asked_, "value");
  EXPECT_TRUE(has_work());
}

TEST_F(FullStoreServer, ListensAgainOnceItAnswersByItself) {
  server_.pass_on_by(nullptr);
  EXPECT_TRUE(has_work());
}

TEST(StoreServer, OutlivesRandomBytesAndClientsThatLeave) {
  const Served served;
  const test::SeedTrace seed_trace;
  std::mt19937_64 random = test::random_stream(20);
  for (int i = 0; i < 500; ++i) {
    const auto fd = rendezvous::connect_unix(served.name());
    ASSERT_TRUE(fd) << fd.error().message();
    const auto kind = rendezvous::StoreRequest::Kind::kSet;
    std::string bytes = *rendezvous::to_bytes({kind, "key", "value"});
    for (int change = 0; change < 3; ++change) {
      bytes[test::below(random, bytes.size())] = static_cast<char>(test::below(random, 256));
    }
    bytes.resize(test::below(random, bytes.size() + 1));
    ASSERT_GE(::send(fd->get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
  }
  LauncherStore store(served.name());
  store.set("after", "all");
  EXPECT_EQ(store.get("after", kLong), "all");
}

}  // namespace
}  // namespace unisono::run
