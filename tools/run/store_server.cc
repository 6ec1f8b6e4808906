#include "tools/run/store_server.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <utility>

#include "base/errno_text.h"
#include "base/network.h"
#include "base/same_user.h"
#include "rendezvous/store/launcher_store.h"

namespace unisono::run {
namespace {

using rendezvous::StoreRequest;

Status watch(int events, int fd) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  if (::epoll_ctl(events, EPOLL_CTL_ADD, fd, &event) == 0) return Status();
  return {ErrorCode::kSystem, fmt::format("cannot watch a socket: {}", errno_text(errno))};
}

// An answer fits the buffer of a socket that nothing was sent to.
void send_at_once(int fd, std::string_view bytes) {
  [[maybe_unused]] const ssize_t sent =
      ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

Result<StoreServer> StoreServer::start(std::size_t clients_max) {
  std::string name = random_socket_name();
  UNISONO_ASSIGN(rendezvous::Listener listener, rendezvous::listen_unix(name));
  UniqueFd events(::epoll_create1(EPOLL_CLOEXEC));
  if (!events) {
    return Status(ErrorCode::kSystem, fmt::format("cannot wait for events: {}", errno_text(errno)));
  }
  UNISONO_TRY(watch(events.get(), listener.fd.get()));
  return StoreServer(std::move(name), std::move(listener), std::move(events), clients_max);
}

StoreServer::StoreServer(std::string name, rendezvous::Listener listener, UniqueFd events,
                         std::size_t clients_max)
    : name_(std::move(name)),
      listener_(std::move(listener)),
      events_(std::move(events)),
      clients_max_(clients_max) {}

void StoreServer::serve() {
  std::array<epoll_event, 64> ready;
  const int count = ::epoll_wait(events_.get(), ready.data(), static_cast<int>(ready.size()), 0);
  for (int i = 0; i < count; ++i) {
    const int fd = ready[static_cast<std::size_t>(i)].data.fd;
    if (fd == listener_.fd.get()) {
      accept_clients();
    } else {
      on_client(fd);
    }
  }
  listen_again();
}

// Any user can connect, to be refused: so many in one turn, that the supervisor has its own.
void StoreServer::accept_clients() {
  constexpr int kAtOnce = 64;
  for (int i = 0; i < kAtOnce; ++i) {
    if (clients_.size() >= clients_max_) return listen(false);
    UniqueFd fd(::accept4(listener_.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd) return;
    if (!check_same_user(fd.get()) || !watch(events_.get(), fd.get())) continue;
    const int number = fd.get();
    clients_[number] = Client{.fd = std::move(fd), .bytes = {}};
  }
}

// While it is full nobody is to wake it who only wants to come in.
void StoreServer::listen(bool on) {
  epoll_event event{.events = on ? EPOLLIN : 0U, .data = {.fd = listener_.fd.get()}};
  if (::epoll_ctl(events_.get(), EPOLL_CTL_MOD, listener_.fd.get(), &event) == 0) listens_ = on;
}

// Clients end outside of serve() as well, and nothing but the listener may wake it then.
void StoreServer::listen_again() {
  if (!listens_ && clients_.size() < clients_max_) listen(true);
}

// An answer to another one may have ended it in this same round.
void StoreServer::on_client(int fd) {
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  Client& client = found->second;
  const auto request = hear(client);
  if (!request) return drop(fd);
  if (!*request) return;
  client.question = ++questions_;
  asked_[client.question] = fd;
  if (!pass_on_) return give(values_.ask({0, client.question}, **request));
  // What these ranks have told is known here when there is nobody left to ask.
  if ((*request)->kind == StoreRequest::Kind::kSet) static_cast<void>(values_.ask({}, **request));
  pass_on_(client.question, client.bytes);
}

// An error where it has hung up or asks what nobody may.
Result<std::optional<StoreRequest>> StoreServer::hear(Client& client) {
  std::array<char, 4096> piece;
  const ssize_t got = ::recv(client.fd.get(), piece.data(), piece.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return std::optional<StoreRequest>();
  // A question is all that a client says.
  if (got <= 0 || client.question != 0) return Status(ErrorCode::kProtocol, "it has no question");
  client.bytes.append(piece.data(), static_cast<std::size_t>(got));
  return rendezvous::request_from_bytes(client.bytes);
}

void StoreServer::give(const StoreValues::Answers& answers) {
  for (const auto& [asker, bytes] : answers) {
    if (asker.node == 0) {
      answer(asker.question, bytes);
    } else if (answer_) {
      answer_(asker, bytes);
    }
  }
}

void StoreServer::answer(std::uint64_t question, const std::string& bytes) {
  const auto found = asked_.find(question);
  if (found == asked_.end()) return;  // it has hung up meanwhile
  send_at_once(found->second, bytes);
  clients_.erase(found->second);
  asked_.erase(found);
  listen_again();
}

void StoreServer::drop(int fd) {
  const std::uint64_t question = clients_.at(fd).question;
  clients_.erase(fd);
  if (asked_.erase(question) == 0) return;
  values_.forget({0, question});
  if (pass_on_) pass_on_(question, "");
}

Status StoreServer::ask(const Asker& asker, std::string_view bytes) {
  UNISONO_ASSIGN(const auto request, rendezvous::request_from_bytes(bytes));
  if (!request) return {ErrorCode::kProtocol, "half a question to the store"};
  if (values_.count_waiting(asker.node) >= kClientsMax) {
    return {ErrorCode::kProtocol,
            fmt::format("more than {} questions to the store that wait", kClientsMax)};
  }
  give(values_.ask(asker, *request));
  return Status();
}

void StoreServer::pass_on_by(PassOn pass_on) {
  pass_on_ = std::move(pass_on);
  if (pass_on_) return;
  // A rank whose store hangs up asks again.
  for (const auto& [question, fd] : asked_) clients_.erase(fd);
  asked_.clear();
  listen_again();
}

RejoiningFacts facts_in(const StoreServer* store) {
  const auto holds = [store](const std::string& key) {
    return store != nullptr && store->holds(key);
  };
  return {.have_met = [holds](int restarts) { return holds(rendezvous::met_key(restarts)); },
          .waits = [holds](int rank,
                           int restarts) { return holds(rendezvous::waiting_key(rank, restarts)); },
          .has_rejoined =
              [holds](int rank, int restarts) {
                return holds(rendezvous::rejoined_key(rank, restarts));
              }};
}

}  // namespace unisono::run
