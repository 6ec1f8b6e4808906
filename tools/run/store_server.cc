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
  if (!listens_ && clients_.size() < clients_max_) listen(true);
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
    clients_[number] = Client{.fd = std::move(fd), .bytes = {}, .awaited = {}};
  }
}

// While it is full nobody is to wake it who only wants to come in.
void StoreServer::listen(bool on) {
  epoll_event event{.events = on ? EPOLLIN : 0U, .data = {.fd = listener_.fd.get()}};
  if (::epoll_ctl(events_.get(), EPOLL_CTL_MOD, listener_.fd.get(), &event) == 0) listens_ = on;
}

// An answer to another one may have ended it in this same round.
void StoreServer::on_client(int fd) {
  const auto found = clients_.find(fd);
  if (found != clients_.end() && !keep(found->second)) clients_.erase(found);
}

// False when its question is answered, or it has hung up or asks what nobody may.
bool StoreServer::keep(Client& client) {
  std::array<char, 4096> piece;
  const ssize_t got = ::recv(client.fd.get(), piece.data(), piece.size(), MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  // A question is all that a client says.
  if (got == 0 || !client.awaited.empty()) return false;
  client.bytes.append(piece.data(), static_cast<std::size_t>(got));
  const auto request = rendezvous::request_from_bytes(client.bytes);
  if (!request) return false;
  return !*request || !answer(client, **request);
}

// False: the answer has to wait until the key is set.
bool StoreServer::answer(Client& client, const StoreRequest& request) {
  if (request.kind == StoreRequest::Kind::kSet) {
    send_at_once(client.fd.get(), set(request));
    return true;
  }
  const auto found = values_.find(request.key);
  const bool is_there = found != values_.end();
  if (!is_there && request.kind == StoreRequest::Kind::kWait) {
    client.awaited = request.key;
    return false;
  }
  send_at_once(client.fd.get(), rendezvous::store_answer(is_there ? found->second : ""));
  return true;
}

std::string StoreServer::set(const StoreRequest& request) {
  const auto found = values_.find(request.key);
  const std::size_t before = found == values_.end() ? 0 : request.key.size() + found->second.size();
  const std::size_t bytes = bytes_ - before + request.key.size() + request.value.size();
  if (bytes > kBytesMax) {
    return rendezvous::store_refusal(
        fmt::format("the launcher's store holds {} bytes and takes at most {}", bytes_, kBytesMax));
  }
  bytes_ = bytes;
  values_[request.key] = request.value;
  answer_waiting(request.key, request.value);
  return rendezvous::store_answer("");
}

void StoreServer::answer_waiting(std::string_view key, std::string_view value) {
  std::erase_if(clients_, [&](const auto& each) {
    if (each.second.awaited != key) return false;
    send_at_once(each.second.fd.get(), rendezvous::store_answer(value));
    return true;
  });
}

}  // namespace unisono::run
