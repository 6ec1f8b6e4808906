// A rank that introduces itself to an arbiter which knows the key and breaks the rules.
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/socket.h>

#include <cstdlib>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "rendezvous/meeting/introduction.h"
#include "rendezvous/sockets/sockets.h"

namespace unisono::rendezvous {
namespace {

// Nothing here takes so long.
constexpr Duration kLong = std::chrono::minutes(1);

std::string hmac(std::string_view key, std::string_view data) {
  std::string out(32, '\0');
  unsigned int bytes = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(data.data()), data.size(),
       reinterpret_cast<unsigned char*>(out.data()), &bytes);
  return out;
}

// As src/base/handshake.cc has it: HKDF of one block, then the hellos under it.
std::string acceptor_proof(const JobKey& key, const std::string& job, const std::string& hellos) {
  const auto bytes = key.bytes();
  const std::string_view secret(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return hmac(hmac(hmac(job, secret), "unisono handshake 1\x01"),
              "unisono acceptor proof" + hellos);
}

// A greeting is sent in one piece.
std::string receive(int fd, std::size_t bytes) {
  EXPECT_TRUE(wait_ready(fd, false, Clock::now() + std::chrono::seconds(60)));
  std::string text(bytes, '\0');
  EXPECT_EQ(::recv(fd, text.data(), bytes, 0), static_cast<ssize_t>(bytes));
  return text;
}

Member member_of(Rank rank) {
  return {rank, "boot/host", "host", 42, 4000 + rank, 1000, "settings", "address"};
}

/// What a rank of a world of two makes of an arbiter that says this and hangs up.
Status joined(const std::string& said) {
  auto [near, far] = *connected_pair();
  EXPECT_EQ(::send(far.get(), said.data(), said.size(), 0), static_cast<ssize_t>(said.size()));
  ::shutdown(far.get(), SHUT_WR);
  const auto result = converse(ControlStream(std::move(near)), {2, member_of(1), {}},
                               JobKey::random(), Clock::now() + std::chrono::seconds(10));
  const auto* failure = std::get_if<Failure>(&result);
  return failure == nullptr ? Status() : failure->why;
}

TEST(Introduction, TakesNothingButAWelcomeAndThenTheMembers) {
  const std::string job(32, 'a');
  const std::string welcome = encode(WelcomeMessage{2, job, {}});
  const std::string members = encode_members({member_of(0), member_of(1)});
  EXPECT_TRUE(joined(welcome + members).ok());
  std::string of_another_type = members;
  of_another_type[4] = static_cast<char>(MessageType::kDecision);
  for (const std::string& said :
       {members, welcome + welcome + members, welcome + of_another_type,
        encode(WelcomeMessage{3, job, {}}) + members, encode(WelcomeMessage{2, "", {}}) + members,
        encode(WelcomeMessage{2, job, SecretText("short")}) + members,
        welcome + encode_members({member_of(1), member_of(0)})}) {
    const Status status = joined(said);
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.code(), ErrorCode::kRendezvous) << status.message();
  }
  EXPECT_EQ(joined(welcome).code(), ErrorCode::kRendezvous);
  EXPECT_EQ(joined(welcome + encode_members({member_of(0)})).code(), ErrorCode::kRendezvous);
}

TEST(Introduction, AnArbiterThatNeverAnswersIsLeft) {
  auto [near, far] = *connected_pair();
  const auto result = converse(ControlStream(std::move(near)), {2, member_of(1), {}},
                               JobKey::random(), Clock::now());
  const auto* failure = std::get_if<Failure>(&result);
  ASSERT_NE(failure, nullptr);
  EXPECT_TRUE(failure->final) << "it has this rank's join";
  EXPECT_EQ(failure->why.code(), ErrorCode::kRendezvous);
  EXPECT_EQ(failure->why.rank(), 0);
}

constexpr std::chrono::milliseconds kSilence{600};
/// Of which a busy machine does not take all from the one that beats.
constexpr std::chrono::milliseconds kLongSilence{1500};

/// What rank 1 makes of an arbiter behind `near` that may be silent for so long.
Attempt<Joined> meets(GuardedFd near, TimePoint deadline,
                      std::chrono::milliseconds silence = kSilence) {
  return converse(ControlStream(std::move(near)), {2, member_of(1), {}, {}, silence},
                  JobKey::random(), deadline);
}

TEST(Introduction, AnArbiterThatHasTakenTheRankInAndIsSilentIsNamed) {
  auto [near, far] = *connected_pair();
  ControlStream arbiter(std::move(far));
  arbiter.queue(encode_awaiting(member_of(0)));
  ASSERT_TRUE(arbiter.flush().ok());
  const auto result = meets(std::move(near), Clock::now() + kLong);
  const auto* failure = std::get_if<Failure>(&result);
  ASSERT_NE(failure, nullptr);
  EXPECT_TRUE(failure->final);
  EXPECT_EQ(failure->why.code(), ErrorCode::kRankFailed);
  EXPECT_EQ(failure->why.rank(), 0);
  EXPECT_EQ(failure->why.message().find("rank 0 (host host, pid 4000) is silent"), 0U)
      << failure->why.message();
}

TEST(Introduction, AnArbiterThatBeatsIsWaitedFor) {
  auto [near, far] = *connected_pair();
  auto outcome = std::async(std::launch::async, [fd = std::move(near)]() mutable {
    return meets(std::move(fd), Clock::now() + kLong, kLongSilence);
  });
  ControlStream arbiter(std::move(far));
  const auto say = [&](std::string bytes) {
    arbiter.queue(std::move(bytes));
    EXPECT_TRUE(arbiter.flush().ok());
  };
  for (const TimePoint end = Clock::now() + 2 * kLongSilence; Clock::now() < end;) {
    say(encode(MessageType::kBeat));
    std::this_thread::sleep_for(kSilence / 12);
  }
  say(encode(WelcomeMessage{2, std::string(32, 'a'), {}}));
  say(encode_members({member_of(0), member_of(1)}));
  EXPECT_TRUE(std::holds_alternative<Joined>(outcome.get()));
}

// It may be late to take anybody in.
TEST(Introduction, AnArbiterThatWasNeverHeardIsNotSilent) {
  auto [near, far] = *connected_pair();
  const auto result = meets(std::move(near), Clock::now() + 2 * kSilence);
  const auto* failure = std::get_if<Failure>(&result);
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->why.code(), ErrorCode::kRendezvous) << failure->why.message();
}

/// What a rank makes of somebody who says this where an arbiter was to prove itself, and stays.
Failure met(const std::string& said, const JobKey& key, TimePoint deadline) {
  auto [near, far] = *connected_pair();
  EXPECT_EQ(::send(far.get(), said.data(), said.size(), 0), static_cast<ssize_t>(said.size()));
  ControlStream stream(std::move(near));
  const auto failure = authenticate(&stream, key, "job", 1, deadline);
  return failure ? *failure : Failure{};
}

TEST(Introduction, AStrangerInTheArbitersPlaceIsLeftAtOnce) {
  const JobKey key = JobKey::random();
  Handshake rank(key, Handshake::Role::kInitiator, {"job", 1, 0, HandshakePurpose::kControl, 0});
  Handshake arbiter(key, Handshake::Role::kAcceptor, {"job", 0, -1, HandshakePurpose::kControl, 0});
  const std::string greeting = rank.take_output();
  auto view = std::as_bytes(std::span(greeting));
  ASSERT_TRUE(arbiter.consume(&view).ok());
  const std::string hello = arbiter.take_output();
  std::string of_another_version = hello;
  of_another_version[10] = static_cast<char>(kWireVersion + 1);
  const Failure silent = met("", key, Clock::now());
  EXPECT_EQ(silent.why.code(), ErrorCode::kRendezvous);
  EXPECT_FALSE(silent.final);
  const Failure garbage = met("220 mail.example.com ESMTP\r\n", key, Clock::now() + kLong);
  EXPECT_EQ(garbage.why.code(), ErrorCode::kProtocol);
  EXPECT_FALSE(garbage.final) << "the arbiter may come yet";
  const Failure older = met(of_another_version, key, Clock::now() + kLong);
  EXPECT_EQ(older.why.code(), ErrorCode::kMismatch);
  EXPECT_TRUE(older.final);
  const Failure keyless = met(hello + std::string(32, 'x'), key, Clock::now() + kLong);
  EXPECT_EQ(keyless.why.code(), ErrorCode::kAuthentication);
  EXPECT_TRUE(keyless.final);
}

TEST(Introduction, AnArbiterThatHangsUpOnItsOwnProofIsAFailure) {
  const JobKey key = JobKey::random();
  auto [near, far] = *connected_pair();
  auto outcome = std::async(std::launch::async, [&key, fd = std::move(near)]() mutable {
    ControlStream stream(std::move(fd));
    return authenticate(&stream, key, "job", 1, Clock::now() + std::chrono::seconds(10));
  });
  Handshake arbiter(key, Handshake::Role::kAcceptor, {"job", 0, -1, HandshakePurpose::kControl, 0});
  const std::string greeting = receive(far.get(), 128);
  auto view = std::as_bytes(std::span(greeting));
  ASSERT_TRUE(arbiter.consume(&view).ok());
  const std::string hello = arbiter.take_output();
  const std::string answer = hello + acceptor_proof(key, "job", greeting + hello);
  // It proves itself without having heard the rank's proof, which nobody takes any more.
  ::shutdown(far.get(), SHUT_RD);
  ASSERT_EQ(::send(far.get(), answer.data(), answer.size(), 0),
            static_cast<ssize_t>(answer.size()));
  far.reset();
  if (outcome.wait_for(std::chrono::seconds(30)) != std::future_status::ready) {
    ADD_FAILURE() << "the rank waits for ever";
    std::abort();
  }
  const auto failure = outcome.get();
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->why.code(), ErrorCode::kRendezvous) << failure->why.message();
}

}  // namespace
}  // namespace unisono::rendezvous
