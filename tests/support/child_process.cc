#include "tests/support/child_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "base/clock.h"

extern char** environ;

namespace unisono::test {
namespace {

constexpr char kRoleFlag[] = "--role=";

// Variables that a launcher around this test run may have set.
bool is_inherited(const std::string& entry) {
  for (const char* name :
       {"UNISONO_", "RANK=", "WORLD_SIZE=", "LOCAL_RANK=", "LOCAL_WORLD_SIZE=", "MASTER_ADDR=",
        "MASTER_PORT=", "TORCHELASTIC_", "OMPI_", "PMI_", "PMIX_", "MPI_LOCAL", "SLURM_"}) {
    if (entry.rfind(name, 0) == 0) return false;
  }
  return true;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

std::map<std::string, Role>& roles() {
  static std::map<std::string, Role> all;
  return all;
}

bool run_role(int argc, char** argv, int* status) {
  if (argc < 2 || std::strncmp(argv[1], kRoleFlag, sizeof kRoleFlag - 1) != 0) return false;
  const auto found = roles().find(argv[1] + sizeof kRoleFlag - 1);
  if (found == roles().end()) {
    std::fprintf(stderr, "unknown role %s\n", argv[1]);
    *status = 127;
  } else {
    *status = found->second();
  }
  return true;
}

ChildProcess::ChildProcess(const std::string& role, const std::vector<std::string>& environment) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  pipe_ = UniqueFd(ends[0]);
  const UniqueFd theirs(ends[1]);
  std::vector<std::string> arguments{"/proc/self/exe", kRoleFlag + role};
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (is_inherited(*entry)) variables.emplace_back(*entry);
  }
  for (const std::string& entry : environment) {
    // The last of a name counts.
    const std::string name = entry.substr(0, entry.find('=') + 1);
    std::erase_if(variables, [&](const std::string& known) { return known.rfind(name, 0) == 0; });
    variables.push_back(entry);
  }
  const std::vector<char*> argv = pointers(arguments);
  const std::vector<char*> envp = pointers(variables);
  pid_ = fork();
  if (pid_ < 0) std::abort();
  if (pid_ > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(theirs.get(), STDOUT_FILENO);
  dup2(theirs.get(), STDERR_FILENO);
  execve(argv[0], argv.data(), envp.data());
  _exit(126);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pipe_(std::move(other.pipe_)),
      output_(std::move(other.output_)) {}

ChildProcess::~ChildProcess() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void ChildProcess::kill(int signal) const { ::kill(pid_, signal); }

bool ChildProcess::read_some(int timeout_ms) {
  pollfd ready{pipe_.get(), POLLIN, 0};
  if (poll(&ready, 1, timeout_ms) <= 0) return true;
  char bytes[4096];
  const ssize_t got = read(pipe_.get(), bytes, sizeof bytes);
  if (got <= 0) return false;
  output_.append(bytes, static_cast<std::size_t>(got));
  return true;
}

bool ChildProcess::prints(const std::string& text, Duration patience) {
  const TimePoint deadline = Clock::now() + patience;
  bool open = true;
  while (output_.find(text) == std::string::npos) {
    if (!open || Clock::now() > deadline) return false;
    open = read_some(50);
  }
  return true;
}

int ChildProcess::wait(Duration patience) {
  const TimePoint deadline = Clock::now() + patience;
  while (read_some(50)) {
    if (Clock::now() > deadline) return -1;
  }
  // Its output has ended, so it has, or is about to.
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (Clock::now() > deadline) return -1;
    usleep(1000);
  }
  pid_ = -1;
  return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

int free_port() {
  static std::vector<UniqueFd> kept;
  const UniqueFd& fd = kept.emplace_back(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  const int on = 1;
  if (setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(fd.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0) {
    std::abort();
  }
  return ntohs(address.sin_port);
}

}  // namespace unisono::test
