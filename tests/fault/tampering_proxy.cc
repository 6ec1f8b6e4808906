#include "tests/fault/tampering_proxy.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "base/assert.h"
#include "base/clock.h"

namespace unisono::test {
namespace {

constexpr std::size_t kTamperedBytes = 96;
constexpr Duration kProxyDelay = std::chrono::milliseconds(150);
std::atomic<TamperingProxy*> the_proxy{nullptr};

std::uint16_t port_of(const sockaddr_storage& address) {
  return reinterpret_cast<const sockaddr_in&>(address).sin_port;
}

sockaddr_storage name_of(int fd, decltype(&::getsockname) ask) {
  sockaddr_storage address{};
  socklen_t bytes = sizeof address;
  ask(fd, reinterpret_cast<sockaddr*>(&address), &bytes);
  return address;
}

int dial_directly(int fd, const void* address, socklen_t bytes) {
  return static_cast<int>(::syscall(SYS_connect, fd, address, bytes));
}

}  // namespace

/// One direction of a connection.
struct TamperingProxy::Flow {
  Route route;
  std::shared_ptr<UniqueFd> in, out;
  std::vector<std::byte> taken, waiting;  // not looked at; to be passed on
  std::uint64_t passed = 0;               // bytes that were looked at
  TimePoint held_until{};
  bool ended = false;  // nothing follows

  bool is_held() const { return Clock::now() < held_until; }
  void pass_on(std::size_t bytes) {
    const auto end = taken.begin() + static_cast<std::ptrdiff_t>(bytes);
    waiting.insert(waiting.end(), taken.begin(), end);
    taken.erase(taken.begin(), end);
    passed += bytes;
  }
  void receive() {
    std::byte bytes[65536];
    const ssize_t got = ::recv(in->get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got > 0) taken.insert(taken.end(), bytes, bytes + got);
    if (got == 0 || (got < 0 && errno != EAGAIN)) ended = true;
  }
  void send() {
    const ssize_t sent =
        ::send(out->get(), waiting.data(), waiting.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) waiting.erase(waiting.begin(), waiting.begin() + sent);
    if (sent < 0 && errno != EAGAIN) waiting.clear();
  }
};

TamperingProxy::TamperingProxy(const Tamper& plan)
    : plan_(plan), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
  sockaddr_in loopback{};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int bound =
      ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&loopback), sizeof loopback);
  UNISONO_ASSERT(bound == 0 && ::syscall(SYS_listen, listener_.get(), 64) == 0, "proxy");
  address_ = test::name_of(listener_.get(), &::getsockname);
  the_proxy = this;
  thread_ = std::thread([this] { run(); });
}

TamperingProxy::~TamperingProxy() {
  the_proxy = nullptr;
  ends_ = true;
  thread_.join();
}

void TamperingProxy::this_thread_is(Rank rank) {
  const std::lock_guard lock(mutex_);
  ranks_[std::this_thread::get_id()] = rank;
}

void TamperingProxy::note_listener(int fd) {
  const sockaddr_storage address = test::name_of(fd, &::getsockname);
  if (address.ss_family != AF_INET) return;
  const std::lock_guard lock(mutex_);
  listening_[port_of(address)] = std::this_thread::get_id();
}

int TamperingProxy::connect(int fd, const sockaddr* address, socklen_t bytes) {
  if (address->sa_family != AF_INET) return dial_directly(fd, address, bytes);
  // Before the other end looks for the route it is there.
  const std::lock_guard lock(mutex_);
  const int result = dial_directly(fd, &address_, sizeof(sockaddr_in));
  const int error = errno;
  Route route;
  std::memcpy(&route.target, address, bytes);
  route.from = std::this_thread::get_id();
  route.to = listening_[port_of(route.target)];
  routes_[port_of(test::name_of(fd, &::getsockname))] = route;
  errno = error;
  return result;
}

void TamperingProxy::accept() {
  auto near =
      std::make_shared<UniqueFd>(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  auto far = std::make_shared<UniqueFd>(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // Who dialled may have gone meanwhile.
  if (!*near || !*far) return;
  Route route;
  {
    const std::lock_guard lock(mutex_);
    route = routes_[port_of(test::name_of(near->get(), &::getpeername))];
  }
  if (dial_directly(far->get(), &route.target, sizeof(sockaddr_in)) != 0) return;
  const auto add = [&](const Route& way, const auto& in, const auto& out) {
    flows_.push_back(std::make_unique<Flow>());
    flows_.back()->route = way;
    flows_.back()->in = in;
    flows_.back()->out = out;
  };
  add(route, near, far);
  std::swap(route.from, route.to);
  add(route, far, near);
}

bool TamperingProxy::is_planned(const Flow& flow) {
  const std::lock_guard lock(mutex_);
  const auto is = [&](std::thread::id thread, Rank rank) {
    const auto found = ranks_.find(thread);
    return found != ranks_.end() && found->second == rank;
  };
  return is(flow.route.from, plan_.from) && is(flow.route.to, plan_.to);
}

// Passes on what was taken; does what is planned where it is time for it.
void TamperingProxy::tamper(Flow* flow) {
  const bool is_due = !struck_ && flow->passed + flow->taken.size() > plan_.at && is_planned(*flow);
  if (!is_due || flow->passed > plan_.at) return flow->pass_on(flow->taken.size());
  flow->pass_on(plan_.at - flow->passed);
  std::vector<std::byte>& bytes = flow->taken;
  const std::size_t count = std::min(bytes.size(), kTamperedBytes);
  const auto begin = bytes.begin(), end = begin + static_cast<std::ptrdiff_t>(count);
  struck_ = true;
  switch (plan_.how) {
    case Tampering::kFlip:
      bytes[0] ^= static_cast<std::byte>(1u << plan_.bit % 8);
      break;
    case Tampering::kCut:
      for (const auto& each : {flow->in, flow->out}) ::shutdown(each->get(), SHUT_RDWR);
      return;
    case Tampering::kLose:
      bytes.erase(begin, end);
      break;
    case Tampering::kRepeat:
      flow->waiting.insert(flow->waiting.end(), begin, end);
      break;
    case Tampering::kSwap:
      std::rotate(begin, begin + static_cast<std::ptrdiff_t>(count / 2), end);
      break;
    case Tampering::kDelay:
      flow->held_until = Clock::now() + kProxyDelay;
      break;
  }
  flow->pass_on(bytes.size());
}

void TamperingProxy::run() {
  while (!ends_) {
    std::vector<pollfd> asked{{listener_.get(), POLLIN, 0}};
    for (const auto& flow : flows_) {
      const bool sends = !flow->waiting.empty() && !flow->is_held();
      // One that has much to pass on takes no more.
      const bool receives = !flow->ended && flow->waiting.size() < (1 << 20);
      asked.push_back({receives ? flow->in->get() : -1, POLLIN, 0});
      asked.push_back({sends ? flow->out->get() : -1, POLLOUT, 0});
    }
    ::poll(asked.data(), asked.size(), 5);
    const std::size_t known = flows_.size();
    for (std::size_t i = 0; i < known; ++i) {
      Flow& flow = *flows_[i];
      if (asked[1 + 2 * i].revents != 0) flow.receive();
      tamper(&flow);
      if (asked[2 + 2 * i].revents != 0) flow.send();
      if (flow.ended && flow.waiting.empty()) ::shutdown(flow.out->get(), SHUT_WR);
    }
    std::erase_if(flows_, [](const auto& flow) { return flow->ended && flow->waiting.empty(); });
    if (asked[0].revents != 0) accept();
  }
}

}  // namespace unisono::test

extern "C" int listen(int fd, int backlog) noexcept {
  if (auto* const proxy = unisono::test::the_proxy.load()) proxy->note_listener(fd);
  return static_cast<int>(::syscall(SYS_listen, fd, backlog));
}

extern "C" int connect(int fd, const sockaddr* address, socklen_t bytes) {
  auto* const proxy = unisono::test::the_proxy.load();
  return proxy == nullptr ? unisono::test::dial_directly(fd, address, bytes)
                          : proxy->connect(fd, address, bytes);
}
