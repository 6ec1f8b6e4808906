// Accepting and book-keeping; dial.cc holds the other direction. See connector.h.
#include "transports/tcp/connector.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <iterator>
#include <list>
#include <map>
#include <new>
#include <utility>

#include "base/errno_text.h"
#include "base/line_limit.h"
#include "base/log.h"
#include "base/network.h"
#include "base/same_user.h"
#include "base/unproven_peers.h"
#include "transports/tcp/dial.h"
#include "transports/tcp/handshake_session.h"
#include "transports/tcp/listener.h"
#include "transports/tcp/shortage.h"

namespace unisono::tcp {
namespace {

using boost::system::error_code;

// Time between two polls counts up to this: longer means that nobody polled.
constexpr Duration kPolledMax = unproven_turn(false) / 2;
// How long a free descriptor is waited for.
constexpr Duration kDescriptorPause = std::chrono::milliseconds(100);
constexpr int kHandlersPerPoll = 256;
// Lines about refused strangers: a burst, then one a second.
constexpr int kLinesAtOnce = 10;
constexpr Duration kLineEvery = std::chrono::seconds(1);

}  // namespace

// Handlers refer to this without owning it: they run inside poll() only.
class Connector::Impl {
 public:
  Impl(const StreamOptions& options, ConnectorEvents& events)
      : options_(options), events_(events), retry_(context_) {}
  ~Impl() { drop_unfinished(); }

  Status open() {
    UNISONO_ASSIGN(Listener listener, listen(context_, options_));
    address_ = std::move(listener.address);
    acceptor_ = std::make_unique<Acceptor>(std::move(listener.acceptor));
    accept();
    return {};
  }

  const std::string& address() const { return address_; }

  void dial(Rank peer, std::uint16_t stream, std::vector<Target> targets) {
    auto done = [this, peer, stream](Result<Connection> result) {
      dials_.erase({peer, stream});
      if (!result) return events_.dial_failed(peer, stream, result.error());
      events_.connected(std::move(*result));
    };
    const auto dial = std::make_shared<Dial>(context_, options_, peer, stream, std::move(targets),
                                             std::move(done));
    dials_[{peer, stream}] = dial;
    if (leaving_) dial->leave();
    try {
      dial->start();
    } catch (const std::bad_alloc&) {
      cancel(peer, stream);
      throw;
    }
  }

  void cancel(Rank peer, std::uint16_t stream) {
    const auto found = dials_.find({peer, stream});
    if (found == dials_.end()) return;
    found->second->cancel();
    dials_.erase(found);
  }

  const Dial* find_dial(Rank peer, std::uint16_t stream) const {
    const auto found = dials_.find({peer, stream});
    return found == dials_.end() ? nullptr : found->second.get();
  }

  void leave() {
    leaving_ = true;
    error_code ignored;
    acceptor_->close(ignored);
    for (auto& [key, dial] : dials_) dial->leave();
  }

  bool poll();
  bool busy() const { return !dials_.empty() || !strangers_.empty(); }
  void drop_unfinished();

 private:
  struct Stranger {
    std::shared_ptr<HandshakeSession> session;
    std::string source;
    Duration age{};
    Duration stalled{};  // since it came, or greeted
    bool greeted = false;
  };
  using Strangers = std::list<Stranger>;

  void accept();
  void on_waiting();
  void on_accept(UniqueFd fd);
  bool is_full() const { return strangers_.size() >= kStrangersMax; }
  bool has_room() { return !is_full() || least_promising_one() != strangers_.end(); }
  Strangers::iterator least_promising_one();
  void evict(Strangers::iterator stranger);
  void on_session(Strangers::iterator stranger, const Status& status);
  void admit(HandshakeSession& session);
  void refuse(const HandshakeSession& session, const Status& why);
  void age_strangers(Duration polled);

  boost::asio::io_context context_;
  const StreamOptions& options_;
  ConnectorEvents& events_;
  std::string address_;
  std::unique_ptr<Acceptor> acceptor_;
  bool accepting_ = false;  // a handler waits for that
  int shortages_ = 0;       // in a row
  bool leaving_ = false;
  boost::asio::steady_timer retry_;
  Strangers strangers_;
  std::map<std::pair<Rank, std::uint16_t>, std::shared_ptr<Dial>> dials_;
  TimePoint last_poll_{};
  LineLimit limit_{kLinesAtOnce, kLineEvery};
};

void Connector::Impl::drop_unfinished() {
  for (auto& [key, dial] : dials_) dial->cancel();
  dials_.clear();
  for (Stranger& stranger : strangers_) stranger.session->reset();
  strangers_.clear();
}

bool Connector::Impl::poll() {
  const TimePoint now = Clock::now();
  const Duration polled = std::min(now - last_poll_, kPolledMax);
  last_poll_ = now;
  error_code ignored;
  context_.restart();
  int ran = 0;
  while (ran < kHandlersPerPoll && context_.poll_one(ignored) > 0) ++ran;
  // After the handlers: what has just come in counts.
  age_strangers(polled);
  std::vector<std::shared_ptr<Dial>> dials;
  for (const auto& [key, dial] : dials_) dials.push_back(dial);
  for (const auto& dial : dials) dial->tick(polled);
  if (!accepting_) accept();
  return ran > 0;
}

void Connector::Impl::accept() {
  if (leaving_ || accepting_ || !has_room()) return;
  acceptor_->async_wait(Acceptor::wait_read, [this](const error_code& error) {
    accepting_ = false;
    if (leaving_ || error == boost::asio::error::operation_aborted) return;
    on_waiting();
  });
  accepting_ = true;
}

// Where nothing is waited for afterwards, the next poll looks again.
void Connector::Impl::on_waiting() {
  if (!has_room()) return;
  UniqueFd fd(
      ::accept4(acceptor_->native_handle(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  const int error = fd ? 0 : errno;
  const bool gone_again = error == EAGAIN || error == EINTR || error == ECONNABORTED;
  if (!fd && !gone_again) {
    // Out of descriptors, most likely: the caller waits in the backlog meanwhile.
    limit_.write(
        log::Level::kWarning, last_poll_,
        fmt::format("rank {} cannot accept a connection: {}", options_.rank, errno_text(error)));
    if (is_shortage(error) && ++shortages_ == kShortagesMax) {
      events_.accept_failed(no_connections(options_.rank, errno_text(error)));
    }
    retry_.expires_after(kDescriptorPause);
    retry_.async_wait([this](const error_code&) {
      accepting_ = false;
      accept();
    });
    accepting_ = true;
    return;
  }
  if (fd) {
    shortages_ = 0;
    on_accept(std::move(fd));
  }
  accept();
}

Connector::Impl::Strangers::iterator Connector::Impl::least_promising_one() {
  std::vector<UnprovenPeer> peers;
  for (const Stranger& each : strangers_) {
    peers.push_back({each.source, each.greeted, each.stalled});
  }
  const std::size_t chosen = least_promising(peers);
  return chosen == kNobody ? strangers_.end()
                           : std::next(strangers_.begin(), static_cast<std::ptrdiff_t>(chosen));
}

void Connector::Impl::evict(Strangers::iterator stranger) {
  const auto session = stranger->session;
  refuse(*session, {ErrorCode::kTimeout, "it had come no further when another needed its place"});
  session->reset();
  strangers_.erase(stranger);
}

void Connector::Impl::on_accept(UniqueFd fd) {
  const bool is_unix = options_.family == StreamOptions::Family::kUnix;
  prepare_socket(fd.get(), options_);
  std::string source = source_of(fd.get());
  Socket socket(context_);
  Status usable = is_unix ? check_same_user(fd.get()) : Status();
  // AF_INET stands for AF_INET6 too.
  if (usable) usable = adopt(std::move(fd), is_unix ? AF_UNIX : AF_INET, &socket);
  if (!usable) {
    return limit_.write(
        log::Level::kWarning, last_poll_,
        fmt::format("rank {} refused a connection: {}", options_.rank, usable.message()));
  }
  if (is_full()) evict(least_promising_one());
  HandshakeIdentity identity;
  identity.job_id = options_.job_id;
  identity.self = options_.rank;
  Strangers made(1);
  const auto stranger = made.begin();
  stranger->source = std::move(source);
  stranger->session = std::make_shared<HandshakeSession>(
      std::move(socket), options_.key, Handshake::Role::kAcceptor, std::move(identity),
      [this, stranger](const Status& status) { on_session(stranger, status); });
  strangers_.splice(strangers_.end(), made);
  const auto session = stranger->session;
  session->start();
}

void Connector::Impl::on_session(Strangers::iterator stranger, const Status& status) {
  const auto session = std::move(stranger->session);
  strangers_.erase(stranger);
  if (status) {
    try {
      admit(*session);
    } catch (const std::bad_alloc&) {
      session->reset();  // which says nothing of the peer's proof
      throw;
    }
  } else if (!session->hung_up()) {
    refuse(*session, status);
  } else {
    // A rank that has changed its mind hangs up too: nothing to warn of.
    log::debug(fmt::format("rank {}: {} went away: {}", options_.rank, to_text(session->remote()),
                           status.message()));
  }
  session->cancel();
}

void Connector::Impl::admit(HandshakeSession& session) {
  const Rank peer = session.handshake().peer();
  const std::uint16_t stream = session.handshake().stream();
  const bool known = peer >= 0 && peer < options_.size;
  const Admission answer = known && !leaving_ ? events_.admit(peer, stream)
                                              : (known ? Admission::kEnded : Admission::kUnwanted);
  const bool admitted = answer == Admission::kAdmitted;
  const FrameHeader frame =
      link_frame(admitted ? kFrameAdmitted : kFrameRefused, static_cast<std::uint32_t>(answer));
  std::string bytes = session.take_output();
  bytes.append(reinterpret_cast<const char*>(&frame), sizeof frame);
  if (!session.answer(bytes)) return;
  Connection connection;
  connection.peer = peer;
  connection.stream = stream;
  connection.same_host = same_host(session.local(), session.remote());
  connection.remote = to_text(session.remote());
  connection.first_bytes = session.take_rest();
  connection.fd = session.release();
  // The peer acts on its answer; should it dial again, it finds this stream taken.
  if (connection.fd && admitted) events_.connected(std::move(connection));
}

void Connector::Impl::refuse(const HandshakeSession& session, const Status& why) {
  // A rank that began to dial and then computes looks like this: it will dial again.
  const bool may_be_busy =
      why.code() == ErrorCode::kTimeout && (session.silent() || session.handshake().peer() >= 0);
  limit_.write(may_be_busy ? log::Level::kInfo : log::Level::kWarning, last_poll_,
               fmt::format("rank {} refused a connection from {}: {}", options_.rank,
                           to_text(session.remote()), why.message()));
}

void Connector::Impl::age_strangers(Duration polled) {
  for (auto each = strangers_.begin(); each != strangers_.end();) {
    const auto stranger = each++;
    stranger->age += polled;
    const bool advanced = !stranger->greeted && stranger->session->handshake().peer() >= 0;
    stranger->stalled = advanced ? Duration{} : stranger->stalled + polled;
    stranger->greeted = stranger->greeted || advanced;
    if (stranger->age < kStrangerTime) continue;
    const auto session = stranger->session;
    refuse(*session, {ErrorCode::kTimeout, "it did not authenticate itself within 2 s"});
    session->cancel();
    strangers_.erase(stranger);
  }
}

Connector::Connector(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Connector::~Connector() = default;

Result<std::unique_ptr<Connector>> Connector::open(const StreamOptions& options,
                                                   ConnectorEvents& events) {
  std::unique_ptr<Impl> impl;
  try {
    impl = std::make_unique<Impl>(options, events);
  } catch (const boost::system::system_error& failure) {
    return Status(ErrorCode::kOutOfResources,
                  fmt::format("rank {} cannot wait for connections ({}): {}", options.rank,
                              failure.what(), errno_text(failure.code().value())));
  }
  UNISONO_TRY(impl->open());
  return std::unique_ptr<Connector>(new Connector(std::move(impl)));
}

const std::string& Connector::address() const { return impl_->address(); }
void Connector::dial(Rank peer, std::uint16_t stream, std::vector<Target> targets) {
  impl_->dial(peer, stream, std::move(targets));
}
void Connector::cancel(Rank peer, std::uint16_t stream) { impl_->cancel(peer, stream); }
bool Connector::dial_connected(Rank peer, std::uint16_t stream) const {
  const Dial* dial = impl_->find_dial(peer, stream);
  return dial != nullptr && dial->connected();
}
bool Connector::may_be_admitted(Rank peer, std::uint16_t stream) const {
  const Dial* dial = impl_->find_dial(peer, stream);
  return dial != nullptr && dial->may_be_admitted();
}
void Connector::leave() { impl_->leave(); }
bool Connector::poll() { return impl_->poll(); }
void Connector::drop_unfinished() { impl_->drop_unfinished(); }
bool Connector::busy() const { return impl_->busy(); }

}  // namespace unisono::tcp
