// Probes: what is taken for one, when they are sent, and what a port does with what comes.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "rendezvous/client/probe_port.h"
#include "rendezvous/messages/control_address.h"
#include "rendezvous_support.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr milliseconds kSilence{3000};
const TimePoint kBegin = TimePoint() + std::chrono::hours(1);

ProbeCodec codec_of(const JobKey& key, std::string_view job_id) {
  return *ProbeCodec::make(key, job_id);
}

Probe question_of(Rank from, Rank to) {
  return {Probe::Kind::kQuestion, from, to, *random_nonce()};
}

// ---- What is taken for one ----------------------------------------------------------------------

TEST(ProbeCodec, TakesWhatItsJobHasSent) {
  const ProbeCodec codec = codec_of(test_key(), "job");
  for (const Probe::Kind kind : {Probe::Kind::kQuestion, Probe::Kind::kAnswer}) {
    const Probe probe{kind, 3, 70'000, *random_nonce()};
    const std::string bytes = codec.encode(probe);
    EXPECT_THAT(bytes, SizeIs(kProbeBytes));
    EXPECT_EQ(codec.decode(bytes), probe);
  }
}

TEST(ProbeCodec, TakesNothingOfWhoDoesNotKnowTheKeyOrIsOfAnotherJob) {
  const ProbeCodec codec = codec_of(test_key(), "job");
  const Probe probe = question_of(0, 1);
  EXPECT_FALSE(codec.decode(codec_of(JobKey::random(), "job").encode(probe)));
  EXPECT_FALSE(codec.decode(codec_of(test_key(), "another job").encode(probe)));
}

TEST(ProbeCodec, TakesNothingThatHasChangedOrIsOfAnotherLength) {
  const ProbeCodec codec = codec_of(test_key(), "job");
  const std::string bytes = codec.encode(question_of(0, 1));
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    EXPECT_FALSE(codec.decode(changed)) << "byte " << at;
    EXPECT_FALSE(codec.decode(bytes.substr(0, at))) << at << " bytes";
  }
  EXPECT_FALSE(codec.decode(bytes + '\0'));
}

// ---- When they are sent -------------------------------------------------------------------------

std::vector<Rank> asked_at(Prober* prober, TimePoint now) {
  std::vector<Rank> ranks;
  for (const Prober::Question& question : prober->take_questions(now)) {
    ranks.push_back(question.rank);
  }
  return ranks;
}

TEST(Prober, AsksAFewTimesInAQuarterOfTheSilence) {
  Prober prober(kSilence);
  EXPECT_EQ(prober.next_due(), kNever) << "while nobody is asked";
  prober.begin(2, *random_nonce(), kBegin);
  int sendings = 0;
  TimePoint now = kBegin;
  while (prober.next_due() != kNever) {
    now = prober.next_due();
    sendings += static_cast<int>(asked_at(&prober, now).size());
    for (const Prober::Outcome& outcome : prober.take_outcomes(now)) {
      EXPECT_EQ(outcome, (Prober::Outcome{2, false}));
    }
  }
  EXPECT_EQ(sendings, 4);
  EXPECT_EQ(now, kBegin + kSilence / 4);
}

TEST(Prober, TellsAtOnceWhoHasAnswered) {
  Prober prober(kSilence);
  const ProbeNonce nonce = *random_nonce();
  prober.begin(2, nonce, kBegin);
  prober.begin(3, *random_nonce(), kBegin);
  EXPECT_THAT(asked_at(&prober, kBegin), ElementsAre(2, 3));
  prober.on_answer(2, nonce);
  prober.on_answer(3, nonce);  // is of another question
  EXPECT_LE(prober.next_due(), kBegin);
  EXPECT_THAT(prober.take_outcomes(kBegin), ElementsAre(Prober::Outcome{2, true}));
  EXPECT_THAT(asked_at(&prober, kBegin + kSilence / 8), ElementsAre(3));
}

TEST(Prober, AsksABoundedNumber) {
  Prober prober(kSilence);
  for (Rank rank = 0; rank < 10'000; ++rank) prober.begin(rank, *random_nonce(), kBegin);
  EXPECT_THAT(prober.take_questions(kBegin), SizeIs(256));
}

// ---- What a port does with what comes -----------------------------------------------------------

Listener loopback_socket() {
  auto socket = bind_udp("127.0.0.1", "");
  EXPECT_TRUE(socket.has_value());
  return std::move(*socket);
}

/// Ranks on hosts of their own, each with a port.
struct Ranks {
  explicit Ranks(int size) {
    World world;
    world.size = size;
    world.job_id = "job";
    world.key = test_key();
    std::vector<Listener> sockets;
    for (Rank rank = 0; rank < size; ++rank) {
      Member member = test_member(rank);
      member.host += std::to_string(rank);
      sockets.push_back(loopback_socket());
      add_address("probe-udp", address_of(sockets.back()), &member);
      EXPECT_TRUE(has_probe_port(member));
      world.members.push_back(member);
    }
    for (Rank rank = 0; rank < size; ++rank) {
      world.rank = rank;
      worlds.push_back(world);
    }
    for (Rank rank = 0; rank < size; ++rank) {
      ports.push_back(*ProbePort::make(std::move(sockets[static_cast<std::size_t>(rank)]),
                                       worlds[static_cast<std::size_t>(rank)], kSilence));
    }
  }
  sockaddr_in address(std::size_t rank) const {
    sockaddr_in to{};
    socklen_t bytes = sizeof to;
    EXPECT_EQ(::getsockname(ports[rank].fd(), reinterpret_cast<sockaddr*>(&to), &bytes), 0);
    return to;
  }
  void send(const Listener& from, std::size_t to, const std::string& bytes) const {
    const sockaddr_in where = address(to);
    EXPECT_EQ(::sendto(from.fd.get(), bytes.data(), bytes.size(), 0,
                       reinterpret_cast<const sockaddr*>(&where), sizeof where),
              static_cast<ssize_t>(bytes.size()));
  }

  std::vector<World> worlds;
  std::vector<ProbePort> ports;
};

/// What has come to a stranger's socket.
std::vector<std::string> received_at(const Listener& socket) {
  std::vector<std::string> all;
  char bytes[1000];
  for (;;) {
    const ssize_t got = ::recv(socket.fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0) return all;
    all.emplace_back(bytes, static_cast<std::size_t>(got));
  }
}

void wait_for_news(const ProbePort& port) {
  pollfd awaited{port.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&awaited, 1, 30'000), 1);
}

TEST(ProbePort, ReachesAnotherThatIsServed) {
  Ranks ranks(2);
  ranks.ports[0].probe(1, kBegin);
  EXPECT_THAT(ranks.ports[0].serve(kBegin), IsEmpty());
  wait_for_news(ranks.ports[1]);
  EXPECT_THAT(ranks.ports[1].serve(kBegin), IsEmpty());
  wait_for_news(ranks.ports[0]);
  EXPECT_THAT(ranks.ports[0].serve(kBegin), ElementsAre(Prober::Outcome{1, true}));
  EXPECT_EQ(ranks.ports[0].next_due(), kNever);
}

TEST(ProbePort, DoesNotReachOneThatIsNot) {
  Ranks ranks(2);
  ranks.ports[0].probe(1, kBegin);
  for (TimePoint now = kBegin; now < kBegin + kSilence / 4; now = ranks.ports[0].next_due()) {
    EXPECT_THAT(ranks.ports[0].serve(now), IsEmpty());
  }
  EXPECT_THAT(ranks.ports[0].serve(kBegin + kSilence / 4), ElementsAre(Prober::Outcome{1, false}));
}

// Nobody is flooded by way of a rank.
TEST(ProbePort, AnswersNoMoreThanItIsAsked) {
  Ranks ranks(2);
  const Listener stranger = loopback_socket();
  const ProbeCodec codec = codec_of(test_key(), "job");
  const Probe question = question_of(0, 1);
  ranks.send(stranger, 1, codec.encode(question));
  wait_for_news(ranks.ports[1]);
  EXPECT_THAT(ranks.ports[1].serve(kBegin), IsEmpty());
  const std::vector<std::string> answers = received_at(stranger);
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_THAT(answers[0], SizeIs(kProbeBytes));
  EXPECT_EQ(codec.decode(answers[0]), (Probe{Probe::Kind::kAnswer, 1, 0, question.nonce}));
}

TEST(ProbePort, SaysNothingToWhoProvesNothing) {
  Ranks ranks(3);
  const Listener stranger = loopback_socket();
  const ProbeCodec codec = codec_of(test_key(), "job");
  const std::string question = codec.encode(question_of(0, 1));
  const std::vector<std::string> nonsense = {
      "",
      "x",
      std::string(kProbeBytes, '\0'),
      std::string(60'000, 'x'),
      question + "x",
      question.substr(1),
      codec_of(JobKey::random(), "job").encode(question_of(0, 1)),
      codec.encode(question_of(0, 2)),  // is for another rank
      codec.encode({Probe::Kind::kAnswer, 0, 1, *random_nonce()})};
  for (const std::string& each : nonsense) ranks.send(stranger, 1, each);
  ranks.send(stranger, 1, question);  // the last, and so behind all others
  std::vector<std::string> answers;
  const TimePoint end = Clock::now() + std::chrono::seconds(30);
  while (answers.empty() && Clock::now() < end) {
    EXPECT_THAT(ranks.ports[1].serve(kBegin), IsEmpty());
    answers = received_at(stranger);
  }
  EXPECT_THAT(answers, SizeIs(1));
}

TEST(ProbePort, ReadsABoundedNumberInATurn) {
  Ranks ranks(2);
  const Listener stranger = loopback_socket();
  const ProbeCodec codec = codec_of(test_key(), "job");
  for (int i = 0; i < 100; ++i) ranks.send(stranger, 1, codec.encode(question_of(0, 1)));
  wait_for_news(ranks.ports[1]);
  ranks.ports[1].serve(kBegin);
  std::size_t answered = received_at(stranger).size();
  EXPECT_LE(answered, 64u);
  const TimePoint end = Clock::now() + std::chrono::seconds(30);
  while (answered < 100 && Clock::now() < end) {
    ranks.ports[1].serve(kBegin);
    answered += received_at(stranger).size();
  }
  EXPECT_EQ(answered, 100u);
}

// A data loader answers for nobody.
TEST(ProbePort, IsNoneOfAForkedChilds) {
  Ranks ranks(2);
  const int fd = ranks.ports[1].fd();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const UniqueFd from(ends[0]), to(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    int type = 0;
    socklen_t bytes = sizeof type;
    const char has = ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 ? 'y' : 'n';
    // Not by its status, which a sanitizer may change as it exits.
    ::_exit(::write(to.get(), &has, 1) == 1 ? 0 : 1);
  }
  char has = 0;
  EXPECT_EQ(::read(from.get(), &has, 1), 1);
  EXPECT_EQ(has, 'n') << "the child has the socket";
  ::waitpid(child, nullptr, 0);
}

TEST(ProbePort, IsThereOnlyWhereAJobSpansHosts) {
  RendezvousPoint point = tcp_point();
  point.silence = kSilence;
  const auto opens = [](RendezvousPoint at) {
    Member self = test_member(0);
    const bool opened = open_probe_port(at, 4, &self).has_value();
    EXPECT_EQ(opened, has_probe_port(self));
    return opened;
  };
  EXPECT_TRUE(opens(point));
  point.local_size = 4;
  EXPECT_FALSE(opens(point)) << "the launcher says that all are here";
  point.local_size = 2;
  EXPECT_TRUE(opens(point));
  point.silence = milliseconds(0);
  EXPECT_FALSE(opens(point)) << "nobody is missed";
  RendezvousPoint here = abstract_point();
  here.silence = kSilence;
  EXPECT_FALSE(opens(here));

  World world;
  world.size = 2;
  world.members = {test_member(0), test_member(1)};
  EXPECT_FALSE(ProbePort::make(loopback_socket(), world, kSilence)) << "all are on one host";
}

TEST(ProbePort, IsMissedByNobodyWhereItCannotBeBound) {
  RendezvousPoint point = tcp_point();
  point.name = "a-name-of-no-address";
  point.silence = kSilence;
  point.interface_address = "192.0.2.1";  // of nobody
  Member self = test_member(0);
  EXPECT_FALSE(open_probe_port(point, 2, &self));
  EXPECT_FALSE(has_probe_port(self));
}

}  // namespace
}  // namespace unisono::rendezvous
