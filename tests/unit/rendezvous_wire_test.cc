// Control messages and rendezvous files: round trips, truncation at every byte, hostile lengths,
// and random bytes, none of which may do more than yield an error.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "rendezvous/failure/witnesses.h"
#include "rendezvous/meeting/contact.h"
#include "rendezvous/messages/control_messages.h"
#include "rendezvous/messages/rejoin_message.h"
#include "rendezvous/sockets/control_stream.h"
#include "rendezvous/sockets/sockets.h"
#include "tests/support/temporary_folder.h"

namespace unisono::rendezvous {
namespace {

using testing::HasSubstr;

constexpr std::size_t kHeadBytes = 5;  // length and type

std::string_view body_of(const std::string& message) {
  return std::string_view(message).substr(kHeadBytes);
}

Member a_member(Rank rank) {
  return {rank, "boot/host", "host", 42, 4000 + rank, 1000, "settings", std::string(3, '\0') + "x",
          77};
}

TEST(ControlMessages, JoinRoundTrips) {
  JoinMessage told{8, a_member(3)};
  told.member.is_newcomer = true;
  const auto join = decode_join(body_of(encode(told)));
  ASSERT_TRUE(join.has_value());
  EXPECT_TRUE(join->member.is_newcomer);
  EXPECT_EQ(join->size, 8);
  EXPECT_EQ(join->member.rank, 3);
  EXPECT_EQ(join->member.host, "boot/host");
  EXPECT_EQ(join->member.network_namespace, 42u);
  EXPECT_EQ(join->member.pid, 4003);
  EXPECT_EQ(join->member.pid_namespace, 77u);
  EXPECT_EQ(join->member.settings, "settings");
  EXPECT_EQ(join->member.addresses, a_member(3).addresses);
}

TEST(ControlMessages, JoinOfARankBeyondItsWorldIsRefused) {
  const auto reads = [](int size, Rank rank) {
    return decode_join(body_of(encode(JoinMessage{size, a_member(rank)}))).has_value();
  };
  EXPECT_TRUE(reads(8, 7));
  EXPECT_FALSE(reads(8, 8));
  EXPECT_FALSE(reads(8, -1));
  EXPECT_FALSE(reads(0, 0));
  EXPECT_FALSE(reads(kWorldSizeMax + 1, 0));
}

TEST(ControlMessages, DecisionRoundTrips) {
  const FailureDecision sent{ErrorCode::kMismatch, 2, 7, std::uint64_t{1} << 40, "text"};
  const auto got = decode_decision(body_of(encode(MessageType::kDecision, sent)), 4);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->code, sent.code);
  EXPECT_EQ(got->failed_rank, 2);
  EXPECT_EQ(got->communicator, 7u);
  EXPECT_EQ(got->sequence, sent.sequence);
  EXPECT_EQ(got->message, "text");
}

TEST(ControlMessages, DecisionAboutNobodysRankIsRefused) {
  const auto about = [](Rank rank) {
    const FailureDecision decision{ErrorCode::kRankFailed, rank, 0, 0, ""};
    return decode_decision(body_of(encode(MessageType::kDecision, decision)), 4).has_value();
  };
  EXPECT_TRUE(about(-1));
  EXPECT_TRUE(about(3));
  EXPECT_FALSE(about(4));
  EXPECT_FALSE(about(-2));
}

TEST(ControlMessages, WaitRoundTripsForRanksOfALargeWorld) {
  const WaitMessage sent{1, 2, {0, 7, 8, 4095}, {0, 1, 4095}};
  const auto got = decode_wait(body_of(encode_wait(MessageType::kTimedOut, sent, 4096)), 4096);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->waiting_for, sent.waiting_for);
  EXPECT_EQ(got->members, sent.members);
  // Bits beyond the world are no ranks.
  EXPECT_FALSE(decode_wait(body_of(encode_wait(MessageType::kWaiting, {1, 2, {7}, {}}, 8)), 7));
}

TEST(ControlMessages, WaitsRoundTripAsManyAsFit) {
  std::vector<WaitMessage> waits(kWaitsMax + 3, WaitMessage{7, 9, {1, 3}, {}});
  waits[1].sequence = kPointToPointSequence;
  const auto few = decode_waits(body_of(encode_waits(waits, 4)), 4);
  ASSERT_TRUE(few.has_value());
  ASSERT_EQ(few->waits.size(), kWaitsMax);
  EXPECT_FALSE(few->is_all);
  EXPECT_EQ(few->waits[0].communicator, 7u);
  EXPECT_EQ(few->waits[1].sequence, kPointToPointSequence);
  EXPECT_EQ(few->waits[2].waiting_for, (std::vector<Rank>{1, 3}));
  const auto none = decode_waits(body_of(encode_waits({}, 4)), 4);
  ASSERT_TRUE(none.has_value());
  EXPECT_TRUE(none->waits.empty());
  EXPECT_TRUE(none->is_all);
  const std::string large = encode_waits(waits, kWorldSizeMax);
  EXPECT_LE(large.size(), kMessageBytesMax + 4);
  EXPECT_GE(decode_waits(body_of(large), kWorldSizeMax)->waits.size(), 4u);
}

TEST(ControlMessages, MalformedWaitsAreRefused) {
  const std::string one = encode_waits({{7, 9, {1, 3}, {}}}, 4);
  const std::string body(body_of(one));
  EXPECT_FALSE(decode_waits(body.substr(0, body.size() - 1), 4).has_value());
  EXPECT_FALSE(decode_waits(body, 2).has_value()) << "a rank that the world does not have";
  std::string many;
  for (std::size_t i = 0; i <= kWaitsMax; ++i) many += body.substr(i == 0 ? 0 : 1);
  EXPECT_FALSE(decode_waits(many, 4).has_value());
}

TEST(ControlMessages, WhatIsSeenOfAProcessIsOfARank) {
  const std::string bytes = encode(SightMessage{3, ProcessSight::kStopped});
  const std::string body(body_of(bytes));
  const auto told = decode_sight(body, 4);
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->rank, 3);
  EXPECT_EQ(told->sight, ProcessSight::kStopped);
  EXPECT_FALSE(decode_sight(body, 3).has_value()) << "a rank that the world does not have";
  EXPECT_FALSE(decode_sight(body.substr(0, body.size() - 1), 4).has_value());
  EXPECT_FALSE(decode_sight(body.substr(0, body.size() - 1) + '\x03', 4).has_value());
  EXPECT_EQ(*decode_rank(body_of(encode_rank(MessageType::kAskSight, 2)), 4), 2);
}

TEST(ControlMessages, WhoWaitsForOthersIsRankZero) {
  const std::string bytes = encode_awaiting(a_member(0));
  const std::string body(body_of(bytes));
  const auto told = decode_awaiting(body);
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->host_name, a_member(0).host_name);
  EXPECT_EQ(told->pid, a_member(0).pid);
  EXPECT_TRUE(told->addresses.empty());
  EXPECT_FALSE(decode_awaiting(body.substr(0, body.size() - 1)).has_value());
  EXPECT_FALSE(decode_awaiting(body + "x").has_value());
  EXPECT_FALSE(decode_awaiting(body_of(encode_awaiting(a_member(1)))).has_value());
}

TEST(ControlMessages, WhatAProbeHasComeToIsOfARank) {
  const std::string bytes = encode(ProbedMessage{3, true});
  const std::string body(body_of(bytes));
  const auto told = decode_probed(body, 4);
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->rank, 3);
  EXPECT_TRUE(told->is_reached);
  EXPECT_FALSE(decode_probed(body, 3).has_value()) << "a rank that the world does not have";
  EXPECT_FALSE(decode_probed(body.substr(0, body.size() - 1), 4).has_value());
  EXPECT_FALSE(decode_probed(body.substr(0, body.size() - 1) + '\x02', 4).has_value());
}

TEST(ControlMessages, TableOf4096RanksComesInBoundedPieces) {
  std::vector<Member> members;
  for (Rank rank = 0; rank < 4096; ++rank) {
    members.push_back(a_member(rank));
    members.back().addresses = std::string(512, 'a');
  }
  const std::string bytes = encode_members(members);
  std::vector<Member> got;
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint32_t length = 0;
    for (int i = 3; i >= 0; --i) length = length << 8 | static_cast<unsigned char>(bytes[at + i]);
    ASSERT_LE(length, kMessageBytesMax);
    ASSERT_TRUE(
        decode_members(std::string_view(bytes).substr(at + kHeadBytes, length - 1), 4096, &got));
    at += 4 + length;
  }
  ASSERT_EQ(got.size(), 4096u);
  EXPECT_EQ(got[4095].pid, 4000 + 4095);
  EXPECT_EQ(got[4095].addresses.size(), 512u);
}

TEST(ControlMessages, MembersOutOfOrderAreRefused) {
  std::vector<Member> got;
  EXPECT_FALSE(decode_members(body_of(encode_members({a_member(1)})), 4, &got));
  EXPECT_FALSE(decode_members(body_of(encode_members({a_member(0), a_member(1)})), 1, &got));
}

TEST(ControlMessages, MemberBeyondItsBoundsIsNamed) {
  Member member = a_member(1);
  EXPECT_TRUE(check_member(member, 2));
  member.addresses = std::string(kAddressBytesMax + 1, 'a');
  EXPECT_THAT(check_member(member, 2).message(), HasSubstr("address text has 4097 bytes"));
  EXPECT_THAT(check_member(a_member(2), 2).message(), HasSubstr("rank 2 is not within 0 to 1"));
  EXPECT_THAT(check_member(a_member(-1), 2).message(), HasSubstr("rank -1 is not within"));
  EXPECT_THAT(check_member(a_member(0), 0).message(), HasSubstr("world size 0"));
  EXPECT_THAT(check_member(a_member(0), kWorldSizeMax + 1).message(),
              HasSubstr("world size 65537"));
  const auto with = [](std::string Member::*field, std::size_t bytes) {
    Member other = a_member(1);
    other.*field = std::string(bytes, 'a');
    return check_member(other, 2).message();
  };
  EXPECT_THAT(with(&Member::host, kHostBytesMax + 1), HasSubstr("host identity has 513 bytes"));
  EXPECT_THAT(with(&Member::host_name, kHostBytesMax + 1), HasSubstr("host name has 513 bytes"));
  EXPECT_THAT(with(&Member::settings, kSettingsBytesMax + 1), HasSubstr("settings text has"));
}

TEST(ControlMessages, RanksOfNoWorldAreNotSent) {
  const std::string text =
      encode_wait(MessageType::kWaiting, {0, 1, {-1000, 3, 9, 100'000}, {}}, 9);
  const auto got = decode_wait(body_of(text), 9);
  ASSERT_TRUE(got.has_value());
  EXPECT_THAT(got->waiting_for, testing::ElementsAre(3));
}

TEST(ControlMessages, ALinkToNobodyIsRefused) {
  const auto to = [](Rank rank) {
    return decode_broken_link(body_of(encode(BrokenLinkMessage{rank, ""})), 4).has_value();
  };
  EXPECT_TRUE(to(3));
  EXPECT_FALSE(to(4));
  EXPECT_FALSE(to(-1));
}

TEST(ControlMessages, ARefusalIsOfACodeAndARankThatThereAre) {
  const auto of = [](ErrorCode code, Rank rank) {
    return decode_refusal(body_of(encode_refusal(Status(code, "why", rank)))).message();
  };
  EXPECT_EQ(of(ErrorCode::kRendezvous, kWorldSizeMax - 1), "why");
  EXPECT_THAT(of(ErrorCode::kRendezvous, kWorldSizeMax), HasSubstr("malformed"));
  EXPECT_THAT(of(ErrorCode::kRendezvous, -2), HasSubstr("malformed"));
  EXPECT_THAT(of(static_cast<ErrorCode>(200), 0), HasSubstr("malformed"));
  const std::string refusal = encode_refusal({ErrorCode::kRendezvous, "why"});
  EXPECT_THAT(decode_refusal(body_of(refusal + "x")).message(), HasSubstr("malformed"));
}

// Every decoder must refuse, or accept, any bytes without harm.
void decode_as_everything(std::string_view bytes) {
  std::vector<Member> members;
  static_cast<void>(decode_join(bytes).has_value());
  static_cast<void>(decode_wait(bytes, 100).has_value());
  static_cast<void>(decode_broken_link(bytes, 100).has_value());
  static_cast<void>(decode_welcome(bytes).has_value());
  static_cast<void>(decode_decision(bytes, 100).has_value());
  EXPECT_FALSE(decode_refusal(bytes).ok());
  static_cast<void>(decode_members(bytes, 100, &members).ok());
  static_cast<void>(decode_awaiting(bytes).has_value());
  static_cast<void>(contact_from_text(bytes).has_value());
}

// Writers cut texts to their bounds; readers do not rely on it.
TEST(ControlMessages, TextsAboveTheirBoundsAreRefused) {
  const auto longer = [](std::string message, std::size_t at) {
    message.insert(at + 4, "x");
    message[at] = static_cast<char>(message[at] + 1);
    return message.substr(kHeadBytes);
  };
  const auto as_long = [](std::size_t bytes) { return std::string(bytes, 'x'); };
  constexpr std::size_t kText = kHeadBytes + 4;  // behind a number of four bytes
  const std::string broken = encode(BrokenLinkMessage{1, as_long(kTextBytesMax)});
  EXPECT_TRUE(decode_broken_link(body_of(broken), 2).has_value());
  EXPECT_FALSE(decode_broken_link(longer(broken, kText), 2).has_value());
  const std::string welcome = encode(WelcomeMessage{2, as_long(kHandshakeBytesMax), {}});
  EXPECT_TRUE(decode_welcome(body_of(welcome)).has_value());
  EXPECT_FALSE(decode_welcome(longer(welcome, kText)).has_value());
  Member member = a_member(0);
  member.host = as_long(kHostBytesMax);
  const std::string members = encode_members({member});
  std::vector<Member> out;
  EXPECT_TRUE(decode_members(body_of(members), 1, &out).ok());
  out.clear();
  EXPECT_FALSE(decode_members(longer(members, kText), 1, &out).ok());
}

TEST(ControlMessages, TruncationAtEveryByteIsRefused) {
  const std::string join = encode(JoinMessage{8, a_member(3)});
  for (std::size_t bytes = 0; bytes + kHeadBytes < join.size(); ++bytes) {
    EXPECT_FALSE(decode_join(body_of(join).substr(0, bytes)).has_value()) << bytes;
  }
  EXPECT_FALSE(decode_join(std::string(body_of(join)) + "x").has_value());
}

TEST(ControlMessages, SurviveDamageOfEveryKind) {
  std::mt19937 random(1);
  const std::vector<std::string> whole = {
      encode(JoinMessage{8, a_member(3)}), encode_members({a_member(0), a_member(1)}),
      encode(WelcomeMessage{8, "job", SecretText(std::string(64, 'a'))}),
      encode_wait(MessageType::kTimedOut, {1, 2, {3}, {4}}, 100),
      encode(MessageType::kDecision, {ErrorCode::kTimeout, 1, 2, 3, "text"})};
  for (int round = 0; round < 20000; ++round) {
    std::string bytes(body_of(whole[random() % whole.size()]));
    for (unsigned change = 0; change < 1 + random() % 4; ++change) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    decode_as_everything(bytes);
  }
}

TEST(ControlMessages, SurviveRandomBytes) {
  std::mt19937 random(2);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes(random() % 200, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() % (round % 2 ? 256 : 4));
    decode_as_everything(bytes);
  }
}

TEST(ControlStream, RefusesHostileLengths) {
  for (const std::string_view head :
       {std::string_view("\0\0\0\0", 4), std::string_view("\xff\xff\xff\xff", 4),
        std::string_view("\x01\0\x01\0", 4)}) {
    auto pair = connected_pair();
    ASSERT_TRUE(pair.has_value());
    ControlStream stream(std::move(pair->first));
    ASSERT_EQ(::send(pair->second.get(), head.data(), head.size(), 0), 4);
    EXPECT_TRUE(stream.receive());
    EXPECT_EQ(stream.next().status().code(), ErrorCode::kProtocol);
  }
}

TEST(ControlStream, GathersMessagesFromSingleBytes) {
  auto pair = connected_pair();
  ASSERT_TRUE(pair.has_value());
  ControlStream stream(std::move(pair->first));
  const std::string bytes = encode(BrokenLinkMessage{2, "why"}) + encode(MessageType::kGoodbye);
  int messages = 0;
  for (const char byte : bytes) {
    ASSERT_EQ(::send(pair->second.get(), &byte, 1, 0), 1);
    ASSERT_TRUE(stream.receive());
    const auto message = stream.next();
    ASSERT_TRUE(message.has_value());
    if (*message) ++messages;
  }
  EXPECT_EQ(messages, 2);
  pair->second.reset();
  EXPECT_FALSE(stream.receive());
}

TEST(ControlStream, ReceivesNoMoreThanItIsAsked) {
  auto [near, far] = *connected_pair();
  const std::string bytes(100, 'x');
  ASSERT_EQ(::send(far.get(), bytes.data(), bytes.size(), 0), 100);
  ControlStream stream(std::move(near));
  EXPECT_TRUE(stream.receive(10));
  EXPECT_EQ(stream.input().size(), 10u);
}

TEST(ControlStream, BacklogOfASilentReaderIsBounded) {
  auto pair = connected_pair();
  ASSERT_TRUE(pair.has_value());
  ControlStream stream(std::move(pair->first));
  bool accepted = true;
  for (int i = 0; i < 1000 && accepted; ++i) {
    accepted = stream.queue(std::string(64 << 10, 'x'), 1 << 20);
    ASSERT_TRUE(stream.flush());
  }
  EXPECT_FALSE(accepted);
}

// The system tells that once, whoever asks, and then that the stream is at its end.
TEST(ControlStream, ThatTimedOutHasNotEndedHoweverOftenItIsFlushed) {
  const auto listener = listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(listener.has_value());
  auto near = connect_tcp("127.0.0.1", listener->port, Clock::now() + std::chrono::seconds(30));
  ASSERT_TRUE(near.has_value()) << near.status().message();
  const unsigned milliseconds = 1;
  ASSERT_EQ(
      ::setsockopt(near->get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds),
      0);
  ControlStream stream(std::move(*near));
  while (stream.flush() && !stream.has_output()) stream.queue(std::string(1 << 20, 'x'));
  // Nobody reads it.
  pollfd failed{stream.fd(), 0, 0};
  ASSERT_EQ(::poll(&failed, 1, 60'000), 1);
  EXPECT_THAT(stream.flush().message(), HasSubstr("timed out"));
  EXPECT_THAT(stream.flush().message(), HasSubstr("Broken pipe"));
  EXPECT_FALSE(stream.receive());
  EXPECT_FALSE(stream.has_ended());
}

class ContactFile : public testing::Test {
 protected:
  void SetUp() override {
    contact_.job_id = random_id();
    contact_.has_key = true;
    contact_.key = JobKey::random();
    contact_.unix_name = "unisono-x";
    contact_.tcp = {{"10.0.0.1", 4000}, {"fe80::1", 4001}};
  }

  const test::TemporaryFolder folder_;
  const std::string path_ = folder_ / "meet";
  Contact contact_;
};

TEST_F(ContactFile, RoundTripsAndIsPrivate) {
  ASSERT_TRUE(write_contact_file(path_, contact_));
  const auto got = read_contact_file(path_);
  ASSERT_TRUE(got.has_value()) << got.status().message();
  EXPECT_EQ(got->job_id, contact_.job_id);
  EXPECT_EQ(got->key.to_hex(), contact_.key.to_hex());
  EXPECT_EQ(got->unix_name, "unisono-x");
  EXPECT_EQ(got->tcp, contact_.tcp);
  struct stat about {};
  ASSERT_EQ(::stat(path_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
}

TEST_F(ContactFile, WithoutAKeyHoldsNone) {
  contact_.has_key = false;
  ASSERT_TRUE(write_contact_file(path_, contact_));
  EXPECT_THAT(std::string(to_text(contact_).view()),
              testing::Not(HasSubstr(std::string(contact_.key.to_hex().view()))));
  const auto got = read_contact_file(path_);
  ASSERT_TRUE(got.has_value()) << got.status().message();
  EXPECT_FALSE(got->has_key);
}

TEST_F(ContactFile, IsReplacedInOneStepLeavingNothingElse) {
  ASSERT_TRUE(write_contact_file(path_, contact_));
  contact_.job_id = random_id();
  ASSERT_TRUE(write_contact_file(path_, contact_));
  EXPECT_EQ(read_contact_file(path_)->job_id, contact_.job_id);
  const std::filesystem::directory_iterator files(folder_.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST_F(ContactFile, ReplacesWhatAKilledWriterLeftHalfWay) {
  ASSERT_TRUE(write_contact_file(path_ + "-before", contact_));
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
    std::filesystem::rename(entry.path(), path_ + ".tmp");
  }
  ASSERT_TRUE(write_contact_file(path_, contact_));
  const std::filesystem::directory_iterator files(folder_.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

// Two jobs in turn at one path: whoever removes its own file must never take the other's along.
TEST_F(ContactFile, OfTheNextJobSurvivesTheRemovalOfThisOnes) {
  Contact next = contact_;
  next.job_id = random_id();
  for (int round = 0; round < 200; ++round) {
    ASSERT_TRUE(write_contact_file(path_, contact_));
    std::thread removal([&] { remove_contact_file(path_, contact_.job_id); });
    const Status written = write_contact_file(path_, next);
    removal.join();
    ASSERT_TRUE(written) << written.message();
    ASSERT_TRUE(std::filesystem::exists(path_)) << "round " << round;
    EXPECT_EQ(read_contact_file(path_)->job_id, next.job_id);
  }
  const std::filesystem::directory_iterator files(folder_.path());
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST_F(ContactFile, OfAnotherJobIsNotRemoved) {
  ASSERT_TRUE(write_contact_file(path_, contact_));
  remove_contact_file(path_, random_id());
  EXPECT_TRUE(std::filesystem::exists(path_));
  remove_contact_file(path_, contact_.job_id);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(ContactFile, ReadableByOthersIsRefused) {
  ASSERT_TRUE(write_contact_file(path_, contact_));
  ASSERT_EQ(::chmod(path_.c_str(), 0644), 0);
  EXPECT_THAT(read_contact_file(path_).status().message(), HasSubstr("not private"));
}

TEST_F(ContactFile, ThatIsMalformedIsNamed) {
  ASSERT_TRUE(write_contact_file(path_, contact_));
  std::filesystem::resize_file(path_, 10);
  EXPECT_THAT(read_contact_file(path_).status().message(), HasSubstr(path_));
}

TEST_F(ContactFile, FifoOrLinkInItsPlaceDoesNotBlock) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(read_contact_file(path_).status().message(), HasSubstr("no regular file"));
  const std::string link = path_ + "-link";
  ASSERT_TRUE(write_contact_file(path_ + "-target", contact_));
  std::filesystem::create_symlink(path_ + "-target", link);
  EXPECT_FALSE(read_contact_file(link).has_value());
}

TEST_F(ContactFile, DirectoryThatDoesNotExistIsNamed) {
  const Status written = write_contact_file("/nonexistent/unisono/meet", contact_);
  EXPECT_THAT(written.message(), HasSubstr("'/nonexistent/unisono/meet': No such file"));
}

TEST(Contact, EveryMalformedLineIsRefused) {
  const std::string title = "unisono rendezvous 1\n", job = "job " + std::string(32, 'a') + "\n";
  const auto reads = [&](const std::string& lines) {
    return contact_from_text(title + job + lines + "end\n").has_value();
  };
  const auto times = [](int count, const std::string& line) {
    std::string lines;
    for (int i = 0; i < count; ++i) lines += line;
    return lines;
  };
  const std::string host(255, 'h'), name(100, 'n'), key(64, '0');
  EXPECT_TRUE(
      reads("key " + key + "\nunix " + name + "\n" + times(16, "tcp " + host + " 65535\n")));
  for (const std::string& lines : {std::string("tcp 10.0.0.1\n"),
                                   std::string("tcp 5\n"),
                                   std::string("tcp 10.0.0.1 0\n"),
                                   std::string("tcp 10.0.0.1 65536\n"),
                                   std::string("tcp 10.0.0.1 1x\n"),
                                   std::string("tcp  1\n"),
                                   "tcp " + host + "h 1\n",
                                   times(17, "tcp a 1\n"),
                                   "unix " + name + "n\n",
                                   std::string("unix \n"),
                                   std::string("unix a b\n"),
                                   "key " + key + "0\n",
                                   "key x" + key.substr(1) + "\n",
                                   std::string("job short\n"),
                                   "job " + std::string(33, 'a') + "\n",
                                   std::string("other line\n"),
                                   std::string("word\n"),
                                   std::string("unix\n"),
                                   std::string("\n"),
                                   std::string("end\n"),
                                   times(300, job)}) {
    EXPECT_FALSE(reads(lines)) << lines.substr(0, 80);
  }
  EXPECT_FALSE(contact_from_text(title + "end\n").has_value());
  EXPECT_FALSE(contact_from_text(job + "end\n").has_value());
  EXPECT_FALSE(contact_from_text("unisono rendezvous 2\n" + job + "end\n").has_value());
  EXPECT_FALSE(contact_from_text(title + job).has_value());
}

TEST_F(ContactFile, TruncationAtEveryByteIsRefused) {
  const std::string text(to_text(contact_).view());
  ASSERT_TRUE(contact_from_text(text).has_value());
  for (std::size_t bytes = 0; bytes < text.size(); ++bytes) {
    EXPECT_FALSE(contact_from_text(text.substr(0, bytes)).has_value()) << bytes;
  }
}

TEST_F(ContactFile, SurvivesDamage) {
  std::mt19937 random(3);
  const std::string text(to_text(contact_).view());
  for (int round = 0; round < 5000; ++round) {
    std::string damaged = text;
    for (unsigned change = 0; change < 1 + random() % 3; ++change) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    static_cast<void>(contact_from_text(damaged).has_value());
  }
}

}  // namespace
}  // namespace unisono::rendezvous
