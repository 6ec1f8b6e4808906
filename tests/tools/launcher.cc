#include "launcher.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>

namespace unisono::run {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
    read.reset(ends[0]);
    write.reset(ends[1]);
  }
  UniqueFd read;
  UniqueFd write;
};

// Appends what is there; closes at the end. A terminal whose other side is gone reports EIO.
void take(UniqueFd& fd, std::string& text) {
  char buffer[65536];
  const ssize_t bytes = ::read(fd.get(), buffer, sizeof(buffer));
  if (bytes > 0) {
    text.append(buffer, static_cast<std::size_t>(bytes));
  } else if (bytes == 0 || errno != EINTR) {
    fd.reset();
  }
}

[[noreturn]] void become_launcher(const std::vector<std::string>& arguments,
                                  const std::vector<std::string>& environment) {
  for (const std::string& entry : environment) ::putenv(const_cast<char*>(entry.c_str()));
  std::vector<char*> argv{const_cast<char*>("unisono"), const_cast<char*>("run")};
  for (const std::string& text : arguments) argv.push_back(const_cast<char*>(text.c_str()));
  argv.push_back(nullptr);
  ::execv(UNISONO_COMMAND, argv.data());
  ::_exit(99);
}

// 'X', as of one that is dead, where there is no such process.
char process_state(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  // The state follows the name in parentheses, which may itself hold any character.
  const std::size_t name_end = text.rfind(')');
  return name_end != std::string::npos && name_end + 2 < text.size() ? text[name_end + 2] : 'X';
}

}  // namespace

bool is_alive(pid_t pid) {
  const char state = process_state(pid);
  return state != 'Z' && state != 'X';
}

bool is_stopped(pid_t pid) { return process_state(pid) == 'T'; }

std::vector<pid_t> children_of(pid_t pid) {
  const std::string text = std::to_string(pid);
  std::ifstream file("/proc/" + text + "/task/" + text + "/children");
  return {std::istream_iterator<pid_t>(file), {}};
}

std::map<int, pid_t> ranks_of(const Launcher& launcher) {
  constexpr std::string_view kName("\0RANK=", 6);
  std::map<int, pid_t> ranks;
  for (const pid_t pid : children_of(launcher.pid())) {
    std::ifstream environment("/proc/" + std::to_string(pid) + "/environ");
    const std::string text((std::istreambuf_iterator<char>(environment)), {});
    const std::size_t at = text.find(kName);
    if (at != std::string::npos) ranks[std::atoi(text.c_str() + at + kName.size())] = pid;
  }
  return ranks;
}

Launcher::Launcher(const std::vector<std::string>& arguments, Options options) {
  if (options.terminal) {
    int master = -1;
    pid_ = ::forkpty(&master, nullptr, nullptr, nullptr);
    if (pid_ == 0) become_launcher(arguments, options.environment);
    ::fcntl(master, F_SETFD, FD_CLOEXEC);
    terminal_.reset(::fcntl(master, F_DUPFD_CLOEXEC, 0));
    out_.reset(master);
    return;
  }
  Pipe in;
  Pipe out;
  Pipe err;
  pid_ = ::fork();
  if (pid_ == 0) {
    ::dup2(in.read.get(), 0);
    ::dup2(out.write.get(), 1);
    ::dup2(options.merge_stderr ? out.write.get() : err.write.get(), 2);
    become_launcher(arguments, options.environment);
  }
  out_ = std::move(out.read);
  err_ = std::move(err.read);
  // Texts in these tests fit in a pipe.
  EXPECT_EQ(::write(in.write.get(), options.stdin_text.data(), options.stdin_text.size()),
            static_cast<ssize_t>(options.stdin_text.size()));
}

Launcher::~Launcher() {
  if (status_ || pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Launcher::signal(int number) const { ::kill(pid_, number); }

void Launcher::type(const std::string& text) const {
  EXPECT_EQ(::write(terminal_.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

bool Launcher::read_some() {
  pollfd polled[2] = {{out_.get(), POLLIN, 0}, {err_.get(), POLLIN, 0}};
  if (!out_ && !err_) return false;
  ::poll(polled, 2, 50);
  if (out_ && polled[0].revents != 0) take(out_, out_text_);
  if (err_ && polled[1].revents != 0) take(err_, err_text_);
  return true;
}

bool Launcher::prints(const std::string& text) {
  return eventually([&] { return out_text_.find(text) != std::string::npos || !read_some(); }) &&
         out_text_.find(text) != std::string::npos;
}

bool Launcher::complains(const std::string& text) {
  return eventually([&] { return err_text_.find(text) != std::string::npos || !read_some(); }) &&
         err_text_.find(text) != std::string::npos;
}

int Launcher::unread_output_bytes() const {
  int bytes = 0;
  return ::ioctl(out_.get(), FIONREAD, &bytes) == 0 ? bytes : -1;
}

// Reading goes on while it ends: it writes to the last moment.
int Launcher::wait() {
  return wait_while([this] { read_some(); });
}

int Launcher::wait_unread() {
  return wait_while([] {});
}

int Launcher::wait_while(const std::function<void()>& meanwhile) {
  if (status_) return *status_;
  int wait_status = 0;
  const bool ended = eventually([&] {
    meanwhile();
    return ::waitpid(pid_, &wait_status, WNOHANG) == pid_;
  });
  if (!ended) return -1;
  status_ = WIFSIGNALED(wait_status) ? 1000 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
  static_cast<void>(eventually([&] { return !read_some(); }));
  return *status_;
}

std::vector<std::string> Launcher::sorted_lines() const {
  std::vector<std::string> lines;
  std::istringstream text(out_text_);
  for (std::string line; std::getline(text, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(line);
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

std::vector<std::string> shell(std::vector<std::string> flags, const std::string& script) {
  flags.insert(flags.end(), {"--", "/bin/sh", "-c", script});
  return flags;
}

pid_t number_after(const std::string& text, const std::string& name) {
  const std::size_t at = text.find(name);
  return at == std::string::npos ? 0 : std::atoi(text.c_str() + at + name.size());
}

}  // namespace unisono::run
