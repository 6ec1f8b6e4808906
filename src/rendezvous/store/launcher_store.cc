#include "rendezvous/store/launcher_store.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <thread>

#include "base/errno_text.h"
#include "rendezvous/sockets/sockets.h"

namespace unisono::rendezvous {
namespace {

// The launcher answers between two looks at its ranks' output, or asks that of another node, whose
// machine may have vanished.
constexpr std::chrono::seconds kLauncherTime(20);
static_assert(kLauncherTime > kUnansweredTime);
// Whoever waits no longer only looks.
constexpr std::chrono::milliseconds kShortWait{1};
// Until a store that has no place for another connection is asked again.
constexpr Duration kAskAgain = std::chrono::milliseconds(5);

Status gone(const std::string& why) {
  return {ErrorCode::kRendezvous, "the launcher's store does not answer: " + why};
}

// False where the store has hung up, or the deadline passed.
Result<bool> send_all(int fd, std::string_view bytes, TimePoint deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EPIPE || errno == ECONNRESET) {
      return false;
    } else if (errno == EAGAIN) {
      if (!wait_ready(fd, true, deadline)) return false;
    } else if (errno != EINTR) {
      return gone(errno_text(errno));
    }
  }
  return true;
}

}  // namespace

std::string met_key(int restarts) { return fmt::format("unisono/met/{}", restarts); }

std::string waiting_key(int rank, int restarts) {
  return fmt::format("unisono/rejoining/{}/{}", rank, restarts);
}

std::string rejoined_key(int rank, int restarts) {
  return fmt::format("unisono/rejoined/{}/{}", rank, restarts);
}

void LauncherStore::set(std::string_view key, std::string_view value) {
  static_cast<void>(ask_now({StoreRequest::Kind::kSet, std::string(key), std::string(value)}));
}

std::string LauncherStore::get(std::string_view key, std::chrono::milliseconds timeout) {
  const TimePoint deadline = later(Clock::now(), timeout);
  std::string now = ask_now({StoreRequest::Kind::kGet, std::string(key), ""});
  if (!now.empty() || timeout <= kShortWait) return now;
  auto value = ask({StoreRequest::Kind::kWait, std::string(key), ""}, deadline);
  if (!value) throw Error(value.error());
  return *value ? **std::move(value) : std::string();
}

std::string LauncherStore::ask_now(const StoreRequest& request) const {
  auto answer = ask(request, later(Clock::now(), kLauncherTime));
  if (!answer) throw Error(answer.error());
  if (!*answer)
    throw Error(gone(fmt::format("nothing has come within {} s", kLauncherTime.count())));
  return **std::move(answer);
}

// Nothing where the deadline passed first.
Result<std::optional<std::string>> LauncherStore::ask(const StoreRequest& request,
                                                      TimePoint deadline) const {
  UNISONO_ASSIGN(const std::string question, to_bytes(request));
  for (;;) {
    auto answer = ask_once(question, deadline);
    if (!answer || *answer || Clock::now() >= deadline) return answer;
    std::this_thread::sleep_for(std::min<Duration>(kAskAgain, deadline - Clock::now()));
  }
}

// Nothing where there was no answer, because the deadline passed or the store was full.
Result<std::optional<std::string>> LauncherStore::ask_once(const std::string& question,
                                                           TimePoint deadline) const {
  UNISONO_ASSIGN(const GuardedFd fd, connect_unix(name_, deadline));
  UNISONO_ASSIGN(const bool is_sent, send_all(fd.get(), question, deadline));
  if (!is_sent) return std::optional<std::string>();
  std::string bytes;
  while (wait_ready(fd.get(), false, deadline)) {
    char piece[4096];
    const ssize_t got = ::recv(fd.get(), piece, sizeof piece, 0);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0 && errno != ECONNRESET) return gone(errno_text(errno));
    if (got <= 0) break;
    bytes.append(piece, static_cast<std::size_t>(got));
    UNISONO_ASSIGN(auto answer, answer_from_bytes(bytes));
    if (answer) return answer;
  }
  return std::optional<std::string>();
}

}  // namespace unisono::rendezvous
