#include "rendezvous_support.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <list>
#include <thread>

#include "rendezvous/meeting/rendezvous_point.h"
#include "rendezvous/messages/arbiter_connection.h"
#include "rendezvous/sockets/sockets.h"
#include "tests/support/temporary_folder.h"

extern char** environ;

namespace unisono::rendezvous {
namespace {

constexpr const char* kRole = "--as-rank";
constexpr const char* kKeyText = "the key of the rendezvous tests";

std::string own_path() {
  char path[4096];
  const ssize_t bytes = ::readlink("/proc/self/exe", path, sizeof path);
  return bytes > 0 ? std::string(path, static_cast<std::size_t>(bytes)) : "";
}

bool input_closed() {
  pollfd entry{STDIN_FILENO, POLLIN, 0};
  return ::poll(&entry, 1, 1) > 0;
}

void print(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

}  // namespace

Member test_member(Rank rank) {
  Member member;
  member.rank = rank;
  member.host = "boot/test";
  member.host_name = "testhost";
  member.pid = ::getpid();
  member.uid = ::geteuid();
  member.settings = "transport=auto";
  member.addresses = "address of " + std::to_string(rank);
  return member;
}

JobKey test_key() { return *JobKey::from_text(kKeyText); }

RendezvousPoint abstract_point() {
  static std::atomic<int> count{0};
  RendezvousPoint point;
  point.kind = RendezvousPoint::Kind::kAbstract;
  point.name = "unisono-test-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
  return point;
}

RendezvousPoint tcp_point() {
  RendezvousPoint point;
  point.kind = RendezvousPoint::Kind::kTcp;
  point.name = "127.0.0.1";
  point.port = listen_tcp("127.0.0.1", 0)->port;
  point.has_key = true;
  point.key = test_key();
  return point;
}

RendezvousPoint file_point() {
  static std::list<test::TemporaryFolder> folders;
  RendezvousPoint point;
  point.kind = RendezvousPoint::Kind::kFile;
  point.name = folders.emplace_back() / "meet";
  return point;
}

std::vector<Outcome> meet(std::vector<Candidate> candidates) {
  std::vector<Outcome> outcomes(candidates.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    threads.emplace_back([&candidate = candidates[i], &outcome = outcomes[i]] {
      auto joined = ArbiterClient::join(candidate.point, candidate.size, candidate.member,
                                        candidate.deadline);
      outcome.status = joined.status();
      if (joined) outcome.client = std::move(*joined);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

std::vector<Candidate> world_of(const RendezvousPoint& point, int size, Duration deadline) {
  std::vector<Candidate> candidates;
  for (Rank rank = 0; rank < size; ++rank) {
    candidates.push_back({point, size, test_member(rank), Clock::now() + deadline});
  }
  return candidates;
}

void expect_one_world(const std::vector<Outcome>& outcomes) {
  for (const Outcome& outcome : outcomes) ASSERT_TRUE(outcome.status) << outcome.status.message();
  const World& first = outcomes[0].client->world();
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const World& world = outcomes[rank].client->world();
    EXPECT_EQ(world.rank, static_cast<Rank>(rank));
    EXPECT_EQ(world.job_id, first.job_id);
    EXPECT_EQ(world.key.to_hex(), first.key.to_hex());
    ASSERT_EQ(world.members.size(), outcomes.size());
    // Standbys tell more.
    EXPECT_TRUE(world.members[rank].addresses.starts_with("address of " + std::to_string(rank)));
    EXPECT_EQ(world.members[rank].settings, "transport=auto");
  }
}

void leave_all(std::vector<Outcome>* outcomes) {
  for (Outcome& outcome : *outcomes) {
    if (outcome.client) outcome.client->leave();
  }
}

FailureDecision await_decision(ArbiterClient* client) {
  std::vector<FailureDecision> decisions;
  EXPECT_TRUE(eventually([&] {
    decisions = client->take_news().decisions;
    return !decisions.empty();
  })) << "rank "
      << client->world().rank << " heard no decision";
  return decisions.empty() ? FailureDecision() : decisions.front();
}

void say(ControlStream* stream, std::string bytes) {
  stream->queue(std::move(bytes));
  EXPECT_TRUE(stream->flush().ok());
}

std::optional<MessageType> hear(ControlStream* stream) {
  for (bool open = true;;) {
    auto message = stream->next();
    if (message && *message) return (*message)->type;
    if (!message || !open) return std::nullopt;
    EXPECT_TRUE(wait_ready(stream->fd(), false, Clock::now() + kPatience));
    open = stream->receive();
  }
}

ControlStream accept_at(const Listener& listener) {
  EXPECT_TRUE(wait_ready(listener.fd.get(), false, Clock::now() + kPatience));
  return ControlStream(GuardedFd(
      UniqueFd(::accept4(listener.fd.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK))));
}

ControlStream rank_at(const RendezvousPoint& point, Rank rank, int size) {
  GuardedFd fd;
  EXPECT_TRUE(eventually([&] {
    auto connected = connect_unix(point.name);
    if (connected) fd = std::move(*connected);
    return connected.has_value();
  }));
  ControlStream stream(std::move(fd));
  say(&stream, encode(JoinMessage{size, test_member(rank)}));
  return stream;
}

FailureDecision decision_when_rank_one_says(const std::string& said) {
  const RendezvousPoint point = abstract_point();
  auto joined = std::async(std::launch::async, [&] {
    return ArbiterClient::join(point, 2, test_member(0), Clock::now() + kPatience);
  });
  ControlStream rank = rank_at(point, 1, 2);
  EXPECT_EQ(hear(&rank), MessageType::kWelcome);
  auto client = joined.get();
  EXPECT_TRUE(client.has_value()) << client.status().message();
  if (!client) return {};
  say(&rank, said);
  FailureDecision decision = await_decision(client->get());
  (*client)->leave();
  return decision;
}

RankProcess::RankProcess(const std::string& url, Rank rank, int size, const std::string& manner) {
  int input[2], output[2];
  EXPECT_EQ(::pipe2(input, O_CLOEXEC), 0);
  EXPECT_EQ(::pipe2(output, O_CLOEXEC), 0);
  input_.reset(input[1]);
  output_.reset(output[0]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  std::vector<std::string> words = {own_path(),           kRole, url, std::to_string(rank),
                                    std::to_string(size), manner};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  EXPECT_EQ(::posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ), 0);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(input[0]);
  ::close(output[1]);
}

RankProcess::~RankProcess() {
  if (pid_ < 0 || !output_) return;
  kill();
}

std::string RankProcess::line() {
  const TimePoint deadline = Clock::now() + kPatience;
  for (;;) {
    const std::size_t newline = buffer_.find('\n');
    if (newline != std::string::npos) {
      const std::string line = buffer_.substr(0, newline);
      buffer_.erase(0, newline + 1);
      return line;
    }
    char bytes[1024];
    if (!wait_ready(output_.get(), false, deadline)) return "";
    const ssize_t count = ::read(output_.get(), bytes, sizeof bytes);
    if (count <= 0) return "";
    buffer_.append(bytes, static_cast<std::size_t>(count));
  }
}

void RankProcess::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

// A thread of it may run on until the one that takes the signal has a processor.
void RankProcess::stop() {
  ::kill(pid_, SIGSTOP);
  ::waitpid(pid_, nullptr, WUNTRACED);
}

int RankProcess::finish() {
  input_.reset();
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int run_as_rank(int argc, char** argv) {
  if (argc != 6) return 2;
  const std::string url = argv[2], manner = argv[5];
  const Rank rank = std::atoi(argv[3]);
  LauncherVariables launcher;
  launcher.rank = rank;
  launcher.world_size = launcher.local_world_size = std::atoi(argv[4]);
  launcher.master_address = "127.0.0.1";
  launcher.master_port = 29500;
  launcher.run_id = url;  // "env://NAME": a rendezvous of that name
  auto point = rendezvous_point_from_url(url.rfind("env://", 0) == 0 ? "env://" : url, launcher, 0,
                                         kKeyText);
  if (!point) return print(point.error().message()), 1;
  Member self = test_member(rank);
  if (manner == "apart") self.host += std::to_string(rank);
  auto joined = ArbiterClient::join(*point, launcher.world_size, self, Clock::now() + kPatience);
  if (!joined) return print(joined.error().message()), 1;
  ArbiterClient& client = **joined;
  pid_t child = -1;
  if (manner == "forks") child = ::fork();
  if (child == 0) {
    // Outlives its parent with copies of all its descriptors, until the test is over.
    while (!input_closed()) {
    }
    ::_exit(0);
  }
  if (manner == "leaves") client.leave();
  print("joined");
  while (!input_closed()) {
    const std::vector<FailureDecision> decisions = client.take_news().decisions;
    for (const FailureDecision& decision : decisions) {
      print("decision " + std::to_string(decision.failed_rank) + " " + decision.message);
    }
    if (manner == "reports" && decisions.size() == 1 && decisions[0].failed_rank == 0) {
      client.report_timeout({7, 9, {3}, {1, 2, 3}, "all_reduce"});
    }
  }
  if (manner == "exits") std::exit(0);  // without destroying the client
  client.leave();
  return 0;
}

}  // namespace unisono::rendezvous

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "--as-rank") == 0) {
    return unisono::rendezvous::run_as_rank(argc, argv);
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
