// Two handshakes talk through strings; an adversary sits in between and drops, changes, repeats
// and reflects what it likes. Nothing but the two untouched partners may ever get through.
#include "base/handshake.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace unisono {
namespace {

using Role = Handshake::Role;

JobKey key(std::string_view text = "correct horse battery") {
  return JobKey::from_text(text).value();
}

HandshakeIdentity identity(Rank self, Rank peer) {
  HandshakeIdentity out;
  out.job_id = "job-17";
  out.self = self;
  out.peer = peer;
  return out;
}

Handshake initiator(const JobKey& with = key()) {
  auto who = identity(3, 5);
  who.stream = 2;
  return Handshake(with, Role::kInitiator, who);
}
Handshake acceptor(const JobKey& with = key()) {
  return Handshake(with, Role::kAcceptor, identity(5, -1));
}

Status feed(Handshake* to, std::string_view bytes) {
  auto view = std::as_bytes(std::span(bytes));
  return to->consume(&view);
}

struct Outcome {
  Status initiator;
  Status acceptor;
};

// Carries messages to and fro; `change` may alter the n-th message (0 and 2 from the initiator).
template <typename Change>
Outcome talk(Handshake* from, Handshake* to, Change change) {
  Outcome out;
  for (int message = 0; message < 4; ++message) {
    const bool forward = message % 2 == 0;
    std::string bytes = (forward ? from : to)->take_output();
    change(message, &bytes);
    Status& status = forward ? out.acceptor : out.initiator;
    if (!bytes.empty()) status = feed(forward ? to : from, bytes);
  }
  return out;
}
Outcome talk(Handshake* from, Handshake* to) {
  return talk(from, to, [](int, std::string*) {});
}

TEST(Handshake, TellsEachSideWhoTheOtherIs) {
  auto a = initiator(), b = acceptor();
  const Outcome out = talk(&a, &b);
  EXPECT_TRUE(out.initiator.ok()) << out.initiator.message();
  EXPECT_TRUE(out.acceptor.ok()) << out.acceptor.message();
  ASSERT_TRUE(a.done() && b.done());
  EXPECT_EQ(a.peer(), 5);
  EXPECT_EQ(b.peer(), 3);
  EXPECT_EQ(b.stream(), 2);
}

TEST(Handshake, WorksByteByByteAndIsNotDoneBeforeTheLastOne) {
  auto a = initiator(), b = acceptor();
  for (Handshake* to : {&b, &a, &b, &a}) {
    const std::string bytes = (to == &b ? a : b).take_output();
    ASSERT_FALSE(bytes.empty());
    EXPECT_LE(bytes.size(), kHandshakeBytesMax);
    for (const char byte : bytes) {
      EXPECT_FALSE(to->done());
      ASSERT_TRUE(feed(to, {&byte, 1}).ok());
    }
  }
  EXPECT_TRUE(a.done() && b.done());
}

TEST(Handshake, LeavesWhatFollows) {
  auto a = initiator(), b = acceptor();
  ASSERT_TRUE(feed(&b, a.take_output()).ok());
  ASSERT_TRUE(feed(&a, b.take_output()).ok());
  const std::string bytes = a.take_output() + "payload";
  auto view = std::as_bytes(std::span(bytes));
  ASSERT_TRUE(b.consume(&view).ok());
  EXPECT_TRUE(b.done());
  EXPECT_EQ(view.size(), 7u);
  ASSERT_TRUE(b.consume(&view).ok());
  EXPECT_EQ(view.size(), 7u);
}

TEST(Handshake, EveryTruncationLeavesItUndone) {
  for (int message = 0; message < 4; ++message) {
    for (std::size_t kept = 0; kept < (message < 2 ? 128u : 32u); ++kept) {
      auto a = initiator(), b = acceptor();
      talk(&a, &b, [&](int number, std::string* bytes) {
        if (number == message) bytes->resize(kept);
      });
      EXPECT_FALSE(a.done());
      EXPECT_EQ(b.done(), message == 3) << message << " " << kept;
    }
  }
}

TEST(Handshake, EveryFlippedBitIsFoundBeforeTheReaderOfThatMessageIsDone) {
  for (int message = 0; message < 4; ++message) {
    for (std::size_t bit = 0; bit < (message < 2 ? 128u : 32u) * 8; ++bit) {
      auto a = initiator(), b = acceptor();
      const Outcome out = talk(&a, &b, [&](int number, std::string* bytes) {
        if (number == message && bit / 8 < bytes->size()) (*bytes)[bit / 8] ^= 1 << bit % 8;
      });
      ASSERT_FALSE(a.done()) << "message " << message << " bit " << bit;
      ASSERT_EQ(b.done(), message == 3) << "message " << message << " bit " << bit;
      ASSERT_FALSE(out.initiator.ok() && out.acceptor.ok()) << message << " " << bit;
    }
  }
}

// Whoever knows the key could say it, so the proof alone does not refuse it.
TEST(Handshake, EveryFieldOfAGreetingIsJudgedBeforeAnyProof) {
  // Places in a greeting: byte order, version, purpose, direction, own rank twice, the other's
  // rank, length of the job id twice, job id; of an answer the stream too.
  constexpr std::pair<std::size_t, int> kChanges[]{{8, 16}, {10, 1}, {12, 3},  {13, 1}, {19, 128},
                                                   {20, 1}, {24, 1}, {24, 64}, {32, 1}};
  for (const auto& [at, change] : kChanges) {
    auto a = initiator(), b = acceptor();
    std::string hello = a.take_output();
    hello[at] = static_cast<char>(hello[at] ^ change);
    EXPECT_FALSE(feed(&b, hello).ok()) << at;
  }
  for (const auto& [at, change] : kChanges) {
    auto a = initiator(), b = acceptor();
    ASSERT_TRUE(feed(&b, a.take_output()).ok());
    std::string hello = b.take_output();
    hello[at] = static_cast<char>(hello[at] ^ change);
    EXPECT_FALSE(feed(&a, hello).ok()) << at;
  }
  auto a = initiator(), b = acceptor();
  ASSERT_TRUE(feed(&b, a.take_output()).ok());
  std::string hello = b.take_output();
  hello[14] ^= 1;
  EXPECT_EQ(feed(&a, hello).code(), ErrorCode::kProtocol);
  // An answer to anybody, as an initiator's greeting may be to any acceptor.
  auto c = initiator(), d = acceptor();
  ASSERT_TRUE(feed(&d, c.take_output()).ok());
  hello = d.take_output();
  hello.replace(20, 4, 4, '\xff');
  EXPECT_EQ(feed(&c, hello).code(), ErrorCode::kProtocol);
}

TEST(Handshake, ARankDoesNotTalkToItself) {
  Handshake a(key(), Role::kInitiator, identity(5, 5)), b = acceptor();
  EXPECT_EQ(talk(&a, &b).acceptor.code(), ErrorCode::kMismatch);
  EXPECT_FALSE(b.done());
}

TEST(Handshake, WrongKeyIsNamedByTheAcceptorWhichProvesNothing) {
  auto a = initiator(key("another key of sixteen")), b = acceptor();
  const Outcome out = talk(&a, &b);
  EXPECT_EQ(out.acceptor.code(), ErrorCode::kAuthentication);
  EXPECT_NE(out.acceptor.message().find("rank 3"), std::string::npos);
  EXPECT_FALSE(a.done() || b.done());
  EXPECT_EQ(b.take_output(), "");
}

TEST(Handshake, RogueAcceptorWithoutTheKeyIsRefused) {
  auto a = initiator(), b = acceptor();
  const Outcome out = talk(&a, &b, [](int number, std::string* bytes) {
    if (number == 3) bytes->assign(32, 'x');
  });
  EXPECT_EQ(out.initiator.code(), ErrorCode::kAuthentication);
}

struct Difference {
  const char* what;
  HandshakeIdentity initiator;
};

TEST(Handshake, BothSidesNameAMismatch) {
  auto other_job = identity(3, 5), wrong_rank = identity(3, 6), control = identity(3, 5);
  other_job.job_id = "job-18";
  control.purpose = HandshakePurpose::kControl;
  for (const auto& [what, who] : std::vector<Difference>{
           {"another job", other_job}, {"wanted rank 6", wrong_rank}, {"purpose", control}}) {
    Handshake a(key(), Role::kInitiator, who), b = acceptor();
    const Outcome out = talk(&a, &b);
    EXPECT_EQ(out.acceptor.code(), ErrorCode::kMismatch) << what;
    EXPECT_NE(out.acceptor.message().find(what), std::string::npos) << out.acceptor.message();
    EXPECT_EQ(out.initiator.code(), ErrorCode::kMismatch) << what;
    EXPECT_FALSE(a.done() || b.done());
  }
}

TEST(Handshake, ARefusalDoesNotTellTheJobId) {
  auto who = identity(3, 5);
  who.job_id = "guess";
  Handshake a(key(), Role::kInitiator, who), b = acceptor();
  EXPECT_FALSE(feed(&b, a.take_output()).ok());
  EXPECT_EQ(b.take_output().find("job-17"), std::string::npos);
}

TEST(Handshake, OtherVersionAndByteOrderAreNamedOnBothSides) {
  for (const auto& [at, what] :
       std::vector<std::pair<std::size_t, const char*>>{{8, "byte order"}, {10, "wire version"}}) {
    auto a = initiator(), b = acceptor();
    Outcome out = talk(&a, &b, [at = at](int number, std::string* bytes) {
      if (number > 1) return;
      std::swap((*bytes)[at], (*bytes)[at + 1]);
    });
    for (const Status& status : {out.initiator, out.acceptor}) {
      EXPECT_EQ(status.code(), ErrorCode::kMismatch);
      EXPECT_NE(status.message().find(what), std::string::npos) << status.message();
    }
  }
}

TEST(Handshake, AnExpectedPeerMustBeTheOneThatComes) {
  auto a = initiator();
  Handshake b(key(), Role::kAcceptor, identity(5, 4));
  const Outcome out = talk(&a, &b);
  EXPECT_EQ(out.acceptor.code(), ErrorCode::kMismatch);
  EXPECT_NE(out.acceptor.message().find("expected rank 4"), std::string::npos);
  EXPECT_FALSE(a.done());
}

TEST(Handshake, ReflectedBytesAreRefused) {
  auto a = initiator();
  EXPECT_FALSE(feed(&a, a.take_output()).ok());
  // Both directions open at once between the same two ranks, one answered with the other's bytes.
  auto out = initiator();
  auto who = identity(5, 3);
  Handshake in(key(), Role::kAcceptor, identity(3, -1)), honest(key(), Role::kAcceptor, who);
  ASSERT_TRUE(feed(&honest, out.take_output()).ok());
  ASSERT_TRUE(feed(&out, honest.take_output()).ok());
  const std::string proof = out.take_output();
  EXPECT_FALSE(feed(&out, proof).ok());
  EXPECT_FALSE(feed(&in, proof).ok());
}

TEST(Handshake, AReplayedConversationIsRefused) {
  std::vector<std::string> recorded;
  auto a = initiator(), b = acceptor();
  talk(&a, &b, [&](int, std::string* bytes) { recorded.push_back(*bytes); });
  auto victim = acceptor();
  ASSERT_TRUE(feed(&victim, recorded[0]).ok());
  EXPECT_EQ(feed(&victim, recorded[2]).code(), ErrorCode::kAuthentication);
  auto caller = initiator();
  caller.take_output();
  ASSERT_TRUE(feed(&caller, recorded[1]).ok());
  EXPECT_EQ(feed(&caller, recorded[3]).code(), ErrorCode::kAuthentication);
}

TEST(Handshake, AStrangerIsRefusedAtTheFirstWrongByte) {
  auto b = acceptor();
  EXPECT_EQ(feed(&b, "G").code(), ErrorCode::kProtocol);
  EXPECT_EQ(b.take_output(), "");
}

TEST(Handshake, ErrorsAreFinal) {
  auto a = initiator(), b = acceptor();
  EXPECT_FALSE(feed(&b, "GET / HTTP/1.1").ok());
  EXPECT_EQ(feed(&b, a.take_output()).code(), ErrorCode::kProtocol);
  EXPECT_FALSE(b.done());
}

TEST(Handshake, RandomInputNeverGetsThrough) {
  std::mt19937 random(20240917);
  for (int round = 0; round < 4000; ++round) {
    auto a = initiator(), b = acceptor();
    Handshake& victim = round % 2 ? a : b;
    // Half of the rounds begin with a true greeting, so that the proof stage is reached too.
    std::string bytes = round % 4 < 2 ? (round % 2 ? acceptor() : initiator()).take_output() : "";
    for (std::size_t i = random() % 300; i > 0; --i) bytes += static_cast<char>(random());
    while (!bytes.empty()) {
      const std::size_t piece = std::min<std::size_t>(bytes.size(), 1 + random() % 64);
      if (!feed(&victim, bytes.substr(0, piece)).ok()) break;
      bytes.erase(0, piece);
    }
    ASSERT_FALSE(victim.done());
  }
}

TEST(Handshake, AnOverlongJobIdIsAnErrorAndSendsNothing) {
  auto who = identity(0, 1);
  who.job_id.assign(65, 'j');
  Handshake a(key(), Role::kInitiator, who);
  EXPECT_EQ(a.take_output(), "");
  EXPECT_EQ(feed(&a, "").code(), ErrorCode::kInvalidArgument);
}

TEST(JobKey, HexIsTakenAsItIs) {
  const std::string hex = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1F";
  const JobKey made = key(hex);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(made.bytes()[i], i);
  EXPECT_EQ(key(made.to_hex().view()).to_hex(), made.to_hex());
}

TEST(JobKey, HexOfAnotherLengthIsTextLikeAnyOther) {
  const std::string hex(64, '5');
  EXPECT_NE(key(hex + "55").to_hex().view(), hex);
  EXPECT_NE(key(hex.substr(2)).to_hex().view(), hex);
}

TEST(JobKey, TextOfSixteenCharactersIsEnoughAndFifteenAreNot) {
  EXPECT_TRUE(JobKey::from_text("0123456789abcdef").has_value());
  const auto refused = JobKey::from_text("0123456789abcde");
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(refused.error().message().find("0123456789abcde"), std::string::npos);
}

TEST(JobKey, RandomKeysDiffer) { EXPECT_NE(JobKey::random().to_hex(), JobKey::random().to_hex()); }

}  // namespace
}  // namespace unisono
