// The exchange of descriptors between a host's ranks, of which one says what no rank says.
#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "base/memfd.h"
#include "tests/support/eventually.h"
#include "tests/support/other_user.h"
#include "transports/shm/descriptor_message.h"
#include "transports/shm/segment.h"
#include "transports/shm/shared_segment.h"

namespace unisono::test {
namespace {

using shm::Message;
using shm::MessageKind;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kJob = "exchange test";

// World ranks 10, 11, ...; the leader is the first.
shm::LocalPeers meeting_of(const std::vector<std::string>& addresses, int self) {
  shm::LocalPeers peers;
  peers.job_id = kJob;
  peers.self = self;
  peers.addresses = addresses;
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    peers.world_ranks.push_back(static_cast<Rank>(10 + i));
    peers.pids.push_back(getpid());
  }
  return peers;
}

Message message_of(MessageKind kind, int index = -1, const char* text = "") {
  Message message;
  message.magic = shm::kDescriptorMessageMagic;
  message.kind = kind;
  message.index = index;
  message.job_hash = shm::hash_of(kJob);
  std::snprintf(message.text, sizeof message.text, "%s", text);
  return message;
}

UniqueFd socket_at(const std::string& name,
                   const std::function<int(int, const sockaddr*, socklen_t)>& bind_or_connect) {
  UniqueFd end(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  const auto length = *shm::make_address(name, &address);
  EXPECT_EQ(bind_or_connect(end.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
  return end;
}

UniqueFd listen_at(const std::string& name) {
  UniqueFd end = socket_at(name, ::bind);
  EXPECT_EQ(listen(end.get(), 4), 0);
  return end;
}

/// A member whose place is taken by the test.
class FalseMember {
 public:
  /// It has come to the leader, with a heap.
  FalseMember(const std::string& leader, int index) : link_(socket_at(leader, ::connect)) {
    const int sent[]{heap_->fd()};
    EXPECT_TRUE(
        shm::send_message(link_.get(), message_of(MessageKind::kHello, index), sent, soon()));
  }
  void say(const Message& message) {
    EXPECT_TRUE(shm::send_message(link_.get(), message, {}, soon()));
  }
  void say(MessageKind kind) { say(message_of(kind)); }
  Message hear(MessageKind kind) {
    std::vector<UniqueFd> descriptors;
    const auto heard = shm::receive_message(link_.get(), &descriptors, soon());
    EXPECT_TRUE(heard) << heard.status().message();
    EXPECT_EQ(heard ? heard->kind : MessageKind{}, kind);
    return heard ? *heard : Message{};
  }
  void hang_up() { link_.reset(); }

 private:
  static TimePoint soon() { return Clock::now() + seconds(10); }
  const std::shared_ptr<shm::Mapping> heap_ =
      std::move(*shm::Mapping::create("exchange-test", 1 << 20));
  UniqueFd link_;
};

/// A member whose leader's place is taken by the test.
class Led : public testing::Test {
 protected:
  Status meet(TimePoint deadline = Clock::now() + seconds(10)) {
    return shm::SharedSegment::open(*own_, meeting_of({leader_, own_->address()}, 1), deadline)
        .status();
  }
  /// What the member makes of a leader that answers its hello so, with `shared`. Its `answer` is
  /// awaited where it is asked for.
  Status meet_one_that_says(const Message& message, const std::vector<int>& shared = {},
                            Message* answer = nullptr) {
    const UniqueFd leader = listen_at(leader_);
    std::thread speaker([&] {
      const UniqueFd rank(accept4(leader.get(), nullptr, nullptr, SOCK_CLOEXEC));
      std::vector<UniqueFd> descriptors;
      const TimePoint deadline = Clock::now() + seconds(10);
      EXPECT_TRUE(shm::receive_message(rank.get(), &descriptors, deadline));
      EXPECT_TRUE(shm::send_message(rank.get(), message, shared, deadline));
      if (answer == nullptr) return;
      const auto answered = shm::receive_message(rank.get(), &descriptors, deadline);
      EXPECT_TRUE(answered) << answered.status().message();
      if (answered) *answer = *answered;
    });
    const Status found = meet();
    speaker.join();
    return found;
  }

  const std::unique_ptr<shm::LocalListener> own_ = std::move(*shm::LocalListener::open());
  const std::string leader_ = std::move(*shm::LocalListener::open())->address();
};

TEST_F(Led, BelievesNoLeaderThatSaysSomethingElse) {
  const Status found = meet_one_that_says(message_of(MessageKind::kBarrier));
  EXPECT_EQ(found.code(), ErrorCode::kProtocol);
  EXPECT_THAT(found.message(), HasSubstr("unexpected message"));
}

TEST_F(Led, BelievesNoLeaderThatSharesNothing) {
  const Status found = meet_one_that_says(message_of(MessageKind::kDescriptors));
  EXPECT_EQ(found.code(), ErrorCode::kProtocol);
  EXPECT_THAT(found.message(), HasSubstr("number of descriptors"));
}

TEST_F(Led, IsToldWhyThereIsNoneAndWhoseFaultThatIs) {
  for (const int index : {-1, 0, 1, 2}) {
    const Status found = meet_one_that_says(message_of(MessageKind::kRefused, index, "no memory"));
    EXPECT_EQ(found.code(), ErrorCode::kSystem);
    EXPECT_THAT(found.message(), HasSubstr("no memory"));
    EXPECT_EQ(found.rank(), index == 1 ? 11 : 10);
  }
}

TEST_F(Led, IsToldWhyAlsoByALeaderThatHangsUp) {
  const UniqueFd leader = listen_at(leader_);
  std::thread speaker([&] {
    const UniqueFd rank(accept4(leader.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const Message refusal = message_of(MessageKind::kRefused, 0, "no memory");
    EXPECT_TRUE(shm::send_message(rank.get(), refusal, {}, Clock::now() + seconds(10)));
  });
  const Status found = meet();
  speaker.join();
  EXPECT_EQ(found.code(), ErrorCode::kSystem);
  EXPECT_THAT(found.message(), HasSubstr("no memory"));
}

TEST_F(Led, SaysWhyItCannotTakePart) {
  const UniqueFd unsealed = make_memfd("exchange-test", MFD_CLOEXEC);
  Message answer;
  const Status found =
      meet_one_that_says(message_of(MessageKind::kDescriptors),
                         {unsealed.get(), unsealed.get(), unsealed.get()}, &answer);
  EXPECT_FALSE(found.ok());
  EXPECT_EQ(answer.kind, MessageKind::kRefused);
  EXPECT_EQ(answer.index, 1);
  EXPECT_THAT(answer.text,
              AllOf(HasSubstr("rank 11 has no shared memory"), HasSubstr(found.message())));
}

TEST_F(Led, NamesALeaderThatSaysNothing) {
  const UniqueFd leader = listen_at(leader_);
  const Status found = meet(Clock::now() + milliseconds(50));
  EXPECT_EQ(found.code(), ErrorCode::kTimeout);
  EXPECT_EQ(found.rank(), 10);
  EXPECT_THAT(found.message(), HasSubstr("share its memory"));
}

TEST_F(Led, BelievesNoLeaderOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: only root can be somebody else";
  UniqueFd leader;
  const pid_t other = as_another_user([&] { leader = listen_at(leader_); });
  const Status found = meet();
  end(other);
  EXPECT_EQ(found.code(), ErrorCode::kAuthentication);
  EXPECT_THAT(found.message(), HasSubstr("belongs to user 12345"));
}

/// A leader whose member comes after others have.
class Leading : public testing::Test {
 protected:
  void SetUp() override {
    refusal().clear();
    log::set_hook([](log::Level, std::string_view line) { refusal() = line; });
  }
  void TearDown() override { log::set_hook(nullptr); }
  static std::string& refusal() {
    static std::string line;
    return line;
  }
  /// Somebody says this and leaves `descriptors` of memory; the exchange succeeds all the same.
  void meet_after(const Message& message, std::size_t descriptors = 1) {
    const UniqueFd memory = make_memfd("exchange-test", MFD_CLOEXEC);
    const UniqueFd stranger = socket_at(leader_->address(), ::connect);
    const std::vector<int> sent(descriptors, memory.get());
    EXPECT_TRUE(shm::send_message(stranger.get(), message, sent, Clock::now() + seconds(10)));
    meet();
  }
  void meet() {
    const TimePoint deadline = Clock::now() + seconds(10);
    std::thread member([&] {
      EXPECT_TRUE(shm::SharedSegment::open(
          *member_, meeting_of({leader_->address(), member_->address()}, 1), deadline));
    });
    EXPECT_TRUE(shm::SharedSegment::open(
        *leader_, meeting_of({leader_->address(), member_->address()}, 0), deadline));
    member.join();
  }

  const std::unique_ptr<shm::LocalListener> leader_ = std::move(*shm::LocalListener::open());
  const std::unique_ptr<shm::LocalListener> member_ = std::move(*shm::LocalListener::open());
};

TEST_F(Leading, RefusesWhatIsNoHello) {
  meet_after(message_of(MessageKind::kBarrier, 1));
  EXPECT_THAT(refusal(), HasSubstr("was not expected"));
}

TEST_F(Leading, RefusesAHelloWithoutAHeapOrWithTwo) {
  for (const std::size_t descriptors : {0, 2}) {
    refusal().clear();
    meet_after(message_of(MessageKind::kHello, 1), descriptors);
    EXPECT_THAT(refusal(), HasSubstr(std::to_string(descriptors) + " descriptors"));
  }
}

TEST_F(Leading, RefusesIndicesThatNobodyHas) {
  for (const int index : {-1, 0, 2}) {
    refusal().clear();
    meet_after(message_of(MessageKind::kHello, index));
    EXPECT_THAT(refusal(), HasSubstr("local index " + std::to_string(index)));
  }
}

// What a member does once it has met, and leaves out.
TEST_F(Leading, NamesAMemberThatDoesNotComeToTheEnd) {
  for (const bool hangs_up : {true, false}) {
    const auto leader = std::move(*shm::LocalListener::open());
    const auto heap = std::move(*shm::Mapping::create("exchange-test", 1 << 20));
    UniqueFd member = socket_at(leader->address(), ::connect);
    const int sent[]{heap->fd()};
    ASSERT_TRUE(shm::send_message(member.get(), message_of(MessageKind::kHello, 1), sent,
                                  Clock::now() + seconds(10)));
    std::thread other([&] {
      std::vector<UniqueFd> descriptors;
      EXPECT_TRUE(shm::receive_message(member.get(), &descriptors, Clock::now() + seconds(10)));
      if (hangs_up) member.reset();
    });
    const auto segment = shm::SharedSegment::open(
        *leader, meeting_of({leader->address(), member_->address()}, 0),
        Clock::now() + (hangs_up ? milliseconds(10'000) : milliseconds(100)));
    other.join();
    ASSERT_FALSE(segment);
    EXPECT_EQ(segment.error().code(), hangs_up ? ErrorCode::kRankFailed : ErrorCode::kTimeout);
    EXPECT_EQ(segment.error().rank(), 11);
  }
}

using Watch = std::function<Status()>;

/// Four ranks, of whom the test takes the places of some.
class Meeting : public testing::Test {
 protected:
  Meeting() {
    for (int i = 0; i < 4; ++i) {
      listeners_.push_back(std::move(*shm::LocalListener::open()));
      addresses_.push_back(listeners_.back()->address());
    }
  }
  Status meet(int self, Watch watch = nullptr) {
    shm::LocalPeers peers = meeting_of(addresses_, self);
    peers.watch = std::move(watch);
    return shm::SharedSegment::open(*listeners_[static_cast<std::size_t>(self)], std::move(peers),
                                    Clock::now() + seconds(10))
        .status();
  }
  FalseMember false_member(int index) { return {addresses_[0], index}; }
  static void expect_blame(const Message& told, const Status& leaders) {
    EXPECT_EQ(leaders.rank(), 12);
    EXPECT_EQ(told.index, 2);
    EXPECT_EQ(told.text, leaders.message());
  }
  /// What the leader comes to when `one` does that with member 2, which has not read yet what the
  /// leader has sent, as the others have; and what member 3 has said the leader has not. The others
  /// are told so.
  Status meet_where(const std::function<void(FalseMember& one)>& one,
                    MessageKind told = MessageKind::kRefused) {
    Status leaders;
    std::thread leader([&] { leaders = meet(0); });
    FalseMember first = false_member(1), second = false_member(2), third = false_member(3);
    for (FalseMember* member : {&first, &third}) member->hear(MessageKind::kDescriptors);
    for (FalseMember* member : {&third, &first}) member->say(MessageKind::kBarrier);
    one(second);
    leader.join();
    for (FalseMember* member : {&first, &third}) expect_blame(member->hear(told), leaders);
    return leaders;
  }

  std::vector<std::unique_ptr<shm::LocalListener>> listeners_;
  std::vector<std::string> addresses_;
  const Message lacks_room_ =
      message_of(MessageKind::kRefused, 2, "rank 12 has no shared memory: no room");
};

TEST_F(Meeting, AllAreToldWhoCannotTakePart) {
  const Status found = meet_where([this](FalseMember& one) {
    one.hear(MessageKind::kDescriptors);
    one.say(lacks_room_);
  });
  EXPECT_EQ(found.message(), lacks_room_.text);
}

TEST_F(Meeting, AllAreToldWhyOneHangsUp) {
  const Status found = meet_where([this](FalseMember& one) {
    one.say(lacks_room_);
    one.hang_up();
  });
  EXPECT_EQ(found.message(), lacks_room_.text);
}

TEST_F(Meeting, AllAreToldWhoHangsUpWithoutAWord) {
  const Status found = meet_where([](FalseMember& one) { one.hang_up(); }, MessageKind::kLost);
  EXPECT_EQ(found.code(), ErrorCode::kRankFailed);
  EXPECT_THAT(found.message(), HasSubstr("rank 12"));
}

TEST_F(Meeting, AllAreToldWhyOneHangsUpBeforeTheOthersHaveCome) {
  Status leaders;
  std::thread leader([&] { leaders = meet(0); });
  {
    FalseMember second = false_member(2);
    second.say(lacks_room_);
  }
  FalseMember first = false_member(1), third = false_member(3);
  leader.join();
  first.hear(MessageKind::kDescriptors);
  for (FalseMember* member : {&first, &third}) {
    expect_blame(member->hear(MessageKind::kRefused), leaders);
  }
  EXPECT_EQ(leaders.message(), lacks_room_.text);
}

TEST_F(Meeting, WhoComesAfterARankThatDeclinedIsTold) {
  Status leaders;
  std::thread leader([&] { leaders = meet(0); });
  const UniqueFd declines = socket_at(addresses_[0], ::connect);
  EXPECT_TRUE(shm::send_message(declines.get(), lacks_room_, {}, Clock::now() + seconds(10)));
  FalseMember first = false_member(1), third = false_member(3);
  const Message told[]{first.hear(MessageKind::kRefused), third.hear(MessageKind::kRefused)};
  leader.join();
  for (const Message& message : told) expect_blame(message, leaders);
  EXPECT_EQ(leaders.message(), lacks_room_.text);
}

// The leader has everybody's last word when it finds that one has died since.
TEST_F(Meeting, WhoDiesAtTheEndKeepsNobodyFromTheSegment) {
  std::vector<std::thread> others;
  for (const int self : {0, 1}) {
    others.emplace_back([this, self] {
      const Status met = meet(self);
      EXPECT_TRUE(met) << "rank " << 10 + self << ": " << met.message();
    });
  }
  FalseMember dies = false_member(2), comes_last = false_member(3);
  for (FalseMember* member : {&dies, &comes_last}) member->hear(MessageKind::kDescriptors);
  for (FalseMember* member : {&dies, &comes_last}) member->say(MessageKind::kBarrier);
  for (FalseMember* member : {&dies, &comes_last}) member->hear(MessageKind::kBarrier);
  dies.say(MessageKind::kBarrier);
  dies.hang_up();
  comes_last.say(MessageKind::kBarrier);
  comes_last.hear(MessageKind::kBarrier);
  for (std::thread& other : others) other.join();
}

/// The job says of rank 12 that it is silent: where, the test says.
class MeetingOfASilentRank : public Meeting {
 protected:
  Watch silent_once(const std::atomic<bool>& is_silent) const {
    return [this, &is_silent] { return is_silent ? silent_ : Status(); };
  }
  void expect_word(const Status& found) const {
    EXPECT_EQ(found.code(), silent_.code());
    EXPECT_EQ(found.rank(), silent_.rank());
    EXPECT_EQ(found.message(), silent_.message());
  }
  /// Member 2 is silent once it has been in so many barriers; the leader hears that and tells it.
  void expect_leader_to_tell_after(int barriers) {
    std::atomic<bool> is_silent{false};
    Status leaders;
    std::thread leader([&] { leaders = meet(0, silent_once(is_silent)); });
    FalseMember first = false_member(1), second = false_member(2), third = false_member(3);
    for (FalseMember* member : {&first, &second, &third}) member->hear(MessageKind::kDescriptors);
    for (int barrier = 0; barrier < barriers; ++barrier) {
      for (FalseMember* member : {&first, &second, &third}) member->say(MessageKind::kBarrier);
      for (FalseMember* member : {&first, &second, &third}) member->hear(MessageKind::kBarrier);
    }
    for (FalseMember* member : {&first, &third}) member->say(MessageKind::kBarrier);
    is_silent = true;
    leader.join();
    expect_word(leaders);
    for (FalseMember* member : {&first, &third}) {
      expect_blame(member->hear(MessageKind::kLost), leaders);
    }
  }

  const Status silent_{ErrorCode::kRankFailed, "rank 12 is silent", 12};
};

TEST_F(MeetingOfASilentRank, TheLeaderTellsItBeforeTheFirstBarrier) {
  expect_leader_to_tell_after(0);
}

TEST_F(MeetingOfASilentRank, TheLeaderTellsItBeforeTheSecondBarrier) {
  expect_leader_to_tell_after(1);
}

TEST_F(MeetingOfASilentRank, TheLeaderTellsItBeforeItsHello) {
  const std::atomic<bool> is_silent{true};
  const UniqueFd comes = socket_at(addresses_[0], ::connect);
  expect_word(meet(0, silent_once(is_silent)));
}

// The leader is not told.
TEST_F(MeetingOfASilentRank, AMemberHearsItByItself) {
  std::atomic<bool> is_silent{false};
  Status members;
  std::thread leader([&] { EXPECT_EQ(meet(0).rank(), 12); });
  std::thread member([&] { members = meet(1, silent_once(is_silent)); });
  FalseMember second = false_member(2), third = false_member(3);
  second.hear(MessageKind::kDescriptors);
  is_silent = true;
  member.join();
  expect_word(members);
  second.hang_up();
  leader.join();
}

TEST_F(MeetingOfASilentRank, AMemberHearsItOfItsLeader) {
  listeners_[0].reset();
  const UniqueFd says_nothing = listen_at(addresses_[0]);
  const std::atomic<bool> is_silent{true};
  expect_word(meet(1, silent_once(is_silent)));
}

// What it has said before counts, wherever the others hear of its end first.
TEST_F(MeetingOfASilentRank, WhatItHasSaidCounts) {
  FalseMember* speaks = nullptr;
  std::atomic<bool> is_there{false};
  Status leaders;
  std::thread leader([&] {
    leaders = meet(0, [&]() -> Status {
      if (!is_there.exchange(false)) return Status();
      speaks->say(MessageKind::kBarrier);
      return silent_;
    });
  });
  FalseMember first = false_member(1), second = false_member(2), third = false_member(3);
  speaks = &second;
  for (FalseMember* member : {&first, &second, &third}) member->hear(MessageKind::kDescriptors);
  for (int barrier = 0; barrier < 2; ++barrier) {
    for (FalseMember* member : {&first, &third}) member->say(MessageKind::kBarrier);
    is_there = true;
    for (FalseMember* member : {&first, &second, &third}) member->hear(MessageKind::kBarrier);
  }
  leader.join();
  EXPECT_TRUE(leaders) << leaders.message();
}

// Who has met all may leave before others have heard that all have come.
TEST_F(Meeting, AMemberGoesOnWithoutOneThatHasLeft) {
  std::atomic<int> looks{0};
  Status leaders, members;
  std::thread leader([&] { leaders = meet(0); });
  std::thread member([&] {
    members = meet(1, [&] {
      ++looks;
      return Status(ErrorCode::kRankLeft, "rank 12 has left", 12);
    });
  });
  FalseMember second = false_member(2), third = false_member(3);
  for (FalseMember* each : {&second, &third}) each->hear(MessageKind::kDescriptors);
  EXPECT_TRUE(eventually([&] { return looks > 0; }));
  for (int barrier = 0; barrier < 2; ++barrier) {
    for (FalseMember* each : {&second, &third}) each->say(MessageKind::kBarrier);
    for (FalseMember* each : {&second, &third}) each->hear(MessageKind::kBarrier);
  }
  leader.join();
  member.join();
  EXPECT_TRUE(leaders) << leaders.message();
  EXPECT_TRUE(members) << members.message();
}

TEST_F(Meeting, TheLeaderWaitsForNoneThatHasLeft) {
  const Status found = meet(0, [] { return Status(ErrorCode::kRankLeft, "rank 12 has left", 12); });
  EXPECT_EQ(found.code(), ErrorCode::kRankLeft);
  EXPECT_EQ(found.rank(), 12);
}

// Its heap is not mapped, and it is told so.
TEST_F(Leading, NamesAMemberWhoseHeapIsNotSealed) {
  const UniqueFd unsealed = make_memfd("exchange-test", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(unsealed.get(), 1 << 30), 0);
  const UniqueFd member = socket_at(leader_->address(), ::connect);
  const TimePoint deadline = Clock::now() + seconds(10);
  std::thread other([&] {
    const int sent[]{unsealed.get()};
    EXPECT_TRUE(
        shm::send_message(member.get(), message_of(MessageKind::kHello, 1), sent, deadline));
    std::vector<UniqueFd> descriptors;
    EXPECT_TRUE(shm::receive_message(member.get(), &descriptors, deadline));
    for (int barrier = 0; barrier < 2; ++barrier) {
      EXPECT_TRUE(shm::send_message(member.get(), message_of(MessageKind::kBarrier), {}, deadline));
      EXPECT_TRUE(shm::receive_message(member.get(), &descriptors, deadline));
    }
  });
  const auto segment = shm::SharedSegment::open(
      *leader_, meeting_of({leader_->address(), member_->address()}, 0), deadline);
  other.join();
  ASSERT_TRUE(segment) << segment.error().message();
  std::byte out[8];
  const Status refused =
      (*segment)->collect(1, {.path = shm::MemoryPath::kHeap, .bytes = 8, .address = 0}, out);
  EXPECT_EQ(refused.code(), ErrorCode::kProtocol);
  EXPECT_EQ(refused.rank(), 11);
  EXPECT_THAT(refused.message(), HasSubstr("rank 11"));
}

TEST_F(Leading, RefusesAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "SKIPPED: only root can be somebody else";
  const pid_t other = as_another_user([&] {
    const UniqueFd memory = make_memfd("exchange-test", MFD_CLOEXEC);
    const int sent[]{memory.get()};
    static const UniqueFd stranger = socket_at(leader_->address(), ::connect);
    static_cast<void>(shm::send_message(stranger.get(), message_of(MessageKind::kHello, 1), sent,
                                        Clock::now() + seconds(10)));
  });
  meet();
  end(other);
  EXPECT_THAT(refusal(), HasSubstr("belongs to user 12345"));
}

}  // namespace
}  // namespace unisono::test
