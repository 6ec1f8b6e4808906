// Control messages and meeting files: round trips, truncation at every byte, hostile lengths, and
// random bytes, none of which may do more than yield an error.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "rendezvous/contact.h"
#include "rendezvous/control_messages.h"
#include "rendezvous/control_stream.h"
#include "rendezvous/sockets.h"

namespace unisono::rendezvous {
namespace {

using testing::HasSubstr;

constexpr std::size_t kHeadBytes = 5;  // length and type

std::string_view body_of(const std::string& message) {
  return std::string_view(message).substr(kHeadBytes);
}

Member a_member(Rank rank) {
  return {rank, "boot/host", "host", 42, 4000 + rank, 1000, "settings", std::string(3, '\0') + "x"};
}

TEST(ControlMessages, JoinRoundTrips) {
  const auto join = decode_join(body_of(encode(JoinMessage{8, a_member(3)})));
  ASSERT_TRUE(join.has_value());
  EXPECT_EQ(join->size, 8);
  EXPECT_EQ(join->member.rank, 3);
  EXPECT_EQ(join->member.host, "boot/host");
  EXPECT_EQ(join->member.network_namespace, 42u);
  EXPECT_EQ(join->member.pid, 4003);
  EXPECT_EQ(join->member.settings, "settings");
  EXPECT_EQ(join->member.addresses, a_member(3).addresses);
}

TEST(ControlMessages, VerdictRoundTrips) {
  const Verdict sent{ErrorCode::kMismatch, 2, 7, std::uint64_t{1} << 40, "text"};
  const auto got = decode_verdict(body_of(encode(MessageType::kVerdict, sent)), 4);
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->code, sent.code);
  EXPECT_EQ(got->culprit, 2);
  EXPECT_EQ(got->communicator, 7u);
  EXPECT_EQ(got->sequence, sent.sequence);
  EXPECT_EQ(got->message, "text");
}

TEST(ControlMessages, VerdictAboutNobodysRankIsRefused) {
  const auto about = [](Rank rank) {
    const Verdict verdict{ErrorCode::kRankFailed, rank, 0, 0, ""};
    return decode_verdict(body_of(encode(MessageType::kVerdict, verdict)), 4).has_value();
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
  EXPECT_THAT(check_member(a_member(0), 0).message(), HasSubstr("world size 0"));
}

// Every decoder must refuse, or accept, any bytes without harm.
void decode_as_everything(std::string_view bytes) {
  std::vector<Member> members;
  static_cast<void>(decode_join(bytes).has_value());
  static_cast<void>(decode_wait(bytes, 100).has_value());
  static_cast<void>(decode_broken_link(bytes, 100).has_value());
  static_cast<void>(decode_welcome(bytes).has_value());
  static_cast<void>(decode_verdict(bytes, 100).has_value());
  EXPECT_FALSE(decode_refusal(bytes).ok());
  static_cast<void>(decode_members(bytes, 100, &members).ok());
  static_cast<void>(contact_from_text(bytes).has_value());
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
      encode(WelcomeMessage{8, "job", std::string(64, 'a')}),
      encode_wait(MessageType::kTimedOut, {1, 2, {3}, {4}}, 100),
      encode(MessageType::kVerdict, {ErrorCode::kTimeout, 1, 2, 3, "text"})};
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

class ContactFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/unisono_contact_XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    path_ = name + "/meet";
    contact_.job_id = random_id();
    contact_.has_key = true;
    contact_.key = JobKey::random();
    contact_.unix_name = "unisono-x";
    contact_.tcp = {{"10.0.0.1", 4000}, {"fe80::1", 4001}};
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::filesystem::path directory_;
  std::string path_;
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
  EXPECT_THAT(to_text(contact_), testing::Not(HasSubstr(contact_.key.to_hex())));
  const auto got = read_contact_file(path_);
  ASSERT_TRUE(got.has_value()) << got.status().message();
  EXPECT_FALSE(got->has_key);
}

TEST_F(ContactFile, IsReplacedInOneStepLeavingNothingElse) {
  ASSERT_TRUE(write_contact_file(path_, contact_));
  contact_.job_id = random_id();
  ASSERT_TRUE(write_contact_file(path_, contact_));
  EXPECT_EQ(read_contact_file(path_)->job_id, contact_.job_id);
  const std::filesystem::directory_iterator files(directory_);
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST_F(ContactFile, ReplacesWhatAKilledWriterLeftHalfWay) {
  ASSERT_TRUE(write_contact_file(path_ + "-before", contact_));
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    std::filesystem::rename(entry.path(), path_ + ".tmp");
  }
  ASSERT_TRUE(write_contact_file(path_, contact_));
  const std::filesystem::directory_iterator files(directory_);
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
  const std::filesystem::directory_iterator files(directory_);
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

TEST_F(ContactFile, TruncationAtEveryByteIsRefused) {
  const std::string text = to_text(contact_);
  ASSERT_TRUE(contact_from_text(text).has_value());
  for (std::size_t bytes = 0; bytes < text.size(); ++bytes) {
    EXPECT_FALSE(contact_from_text(text.substr(0, bytes)).has_value()) << bytes;
  }
}

TEST_F(ContactFile, SurvivesDamage) {
  std::mt19937 random(3);
  const std::string text = to_text(contact_);
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
