// See dial.h.
#include "transports/tcp/dial.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/errno_text.h"
#include "base/log.h"
#include "base/network.h"
#include "base/same_user.h"
#include "base/unproven_peers.h"
#include "transports/tcp/link_frames.h"
#include "transports/tcp/shortage.h"

namespace unisono::tcp {
namespace {

constexpr Duration kPauseMin = std::chrono::milliseconds(5);
constexpr Duration kPauseMax = std::chrono::seconds(1);
// Where there is another address to try. A peer that computes does not answer, so these are only
// the times after which the next one is tried too. Each try that was let in keeps a place in the
// peer's queue until that polls.
constexpr Duration kMuteAddress = std::chrono::seconds(5);
// Places in that queue that a rank may take, by its streams and some of its tries.
constexpr int kPlacesOfRank = 16;
constexpr Duration kWarnAfter = std::chrono::seconds(5);
constexpr std::size_t kDenialsPerAddress = 3;

// Between processes of one host nothing is lost.
Duration patience_of(const StreamOptions& options) {
  return options.family == StreamOptions::Family::kTcp ? options.unacknowledged_max
                                                       : Duration::zero();
}

}  // namespace

Dial::Dial(boost::asio::io_context& context, const StreamOptions& options, Rank peer,
           std::uint16_t stream, std::vector<Target> targets, Done done)
    : context_(context),
      options_(options),
      peer_(peer),
      stream_(stream),
      targets_(std::move(targets)),
      answers_(targets_.size()),
      done_(std::move(done)),
      socket_(context),
      timer_(context),
      watch_(patience_of(options), targets_.size()),
      pause_(kPauseMin) {}

void Dial::cancel() {
  done_ = nullptr;
  ++attempt_;
  if (session_) session_->cancel();
  session_.reset();
  boost::system::error_code ignored;
  socket_.close(ignored);
  timer_.cancel(ignored);
}

void Dial::tick(Duration polled) {
  const TimePoint now = Clock::now();
  polled_ += polled;
  polled_in_attempt_ += polled;
  watch_.look(now);
  if (connecting_since_ != kNever && now - connecting_since_ >= watch_.turn()) {
    // A queue that is full of ranks lets nobody in before its rank polls, and says as little.
    answers_[target_index_].let_in |= kPlacesOfRank * options_.size > listen_queue();
    return next_target({ErrorCode::kTimeout, "no answer"});
  }
  // A peer that may admit this rank whenever it looks is waited for.
  if (targets_.size() > 1 && !may_be_admitted() && polled_in_attempt_ > kMuteAddress) {
    next_target({ErrorCode::kTimeout, "no answer"});
  }
}

void Dial::attempt() {
  polled_in_attempt_ = Duration{};
  if (target_index_ == 0) watch_.begin_round(Clock::now());
  const std::uint64_t attempt = ++attempt_;
  socket_ = Socket(context_);
  const int family = target().address.ss_family;
  UniqueFd fd(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd && is_shortage(errno)) return on_shortage(errno_text(errno));
  if (!fd) return next_target({ErrorCode::kSystem, errno_text(errno)});
  if (const Status adopted = adopt(std::move(fd), family, &socket_); !adopted) {
    return on_shortage(adopted.message());
  }
  prepare_socket(socket_.native_handle(), options_);
  connecting_since_ = Clock::now();
  socket_.async_connect(
      Protocol::endpoint(&target().address, target().bytes),
      [self = shared_from_this(), attempt](const boost::system::error_code& outcome) {
        if (self->done_ && attempt == self->attempt_) self->on_outcome(outcome);
      });
}

void Dial::on_outcome(const boost::system::error_code& outcome) {
  if (is_shortage(outcome.value())) {
    // Asio's word for EAGAIN, too: the queue of a UNIX socket is full.
    if (target().address.ss_family != AF_UNIX) return on_shortage(outcome.message());
    watch_.restart();
    return pause_and_retry();
  }
  shortages_ = 0;
  if (outcome == boost::asio::error::connection_refused) watch_.note_refusal();
  if (outcome) return next_target({ErrorCode::kSystem, outcome.message()});
  on_connected();
}

void Dial::on_connected() {
  connecting_since_ = kNever;
  answers_[target_index_].let_in = true;
  // The host of a peer that computes answers for it.
  if (patience_of(options_) > Duration::zero()) {
    set_probing(socket_.native_handle(), Probing::kSoon);
  }
  const bool is_unix = target().address.ss_family == AF_UNIX;
  if (const Status same = is_unix ? check_same_user(socket_.native_handle()) : Status(); !same) {
    ++denials();
    return next_target(same);
  }
  HandshakeIdentity identity;
  identity.job_id = options_.job_id;
  identity.self = options_.rank;
  identity.peer = peer_;
  identity.stream = stream_;
  session_began_ = Clock::now();
  // Dial and session hold each other until either is done or cancelled.
  session_ = std::make_shared<HandshakeSession>(
      std::move(socket_), options_.key, Handshake::Role::kInitiator, std::move(identity),
      [self = shared_from_this()](const Status& status) { self->on_session(status); });
  const auto session = session_;
  session->start();
}

void Dial::on_session(const Status& status) {
  if (status) return on_admission();
  if (session_->was_cut()) {
    answers_[target_index_].let_in = false;
    watch_.restart();
    return next_target(status);
  }
  const bool prompt = Clock::now() - session_began_ < kPromptProof;
  if (!session_->hung_up()) {
    ++denials();
    return next_target(status);
  }
  if (!session_->proof_sent() || !prompt || session_->was_reset()) return next_target(status);
  ++denials();
  next_target({ErrorCode::kAuthentication,
               fmt::format("rank {} did not accept rank {}'s proof; every rank of the job needs "
                           "the same key (UNISONO_JOB_KEY)",
                           peer_, options_.rank),
               peer_});
}

void Dial::on_admission() {
  std::string rest = session_->take_rest();
  FrameHeader answer;
  std::memcpy(&answer, rest.data(), sizeof answer);
  if (answer.payload_bytes == 0 && answer.kind == kFrameRefused) {
    return on_refused(static_cast<Admission>(answer.index));
  }
  if (answer.payload_bytes != 0 || answer.kind != kFrameAdmitted) {
    return finish(Status(ErrorCode::kProtocol,
                         fmt::format("rank {} began its connection with an unknown frame", peer_),
                         peer_));
  }
  Connection connection;
  connection.peer = peer_;
  connection.stream = stream_;
  connection.same_host = same_host(session_->local(), session_->remote());
  connection.remote = to_text(target());
  connection.first_bytes = rest.substr(sizeof answer);
  connection.fd = session_->release();
  if (!connection.fd)
    return next_target({ErrorCode::kSystem, "the socket could not be taken over"});
  finish(std::move(connection));
}

void Dial::on_refused(Admission why) {
  if (why == Admission::kCrossing || why == Admission::kTaken) {
    // The peer's own connection is on its way here and ends this dial when it arrives.
    session_->cancel();
    session_.reset();
    return pause_and_retry();
  }
  finish(Status(ErrorCode::kRankLeft,
                why == Admission::kEnded
                    ? fmt::format("rank {} has ended its link with rank {}", peer_, options_.rank)
                    : fmt::format("rank {} takes no stream {}", peer_, stream_),
                peer_));
}

void Dial::next_target(const Status& cause) {
  if (session_) session_->cancel();
  session_.reset();
  boost::system::error_code ignored;
  socket_.close(ignored);
  ++attempt_;
  connecting_since_ = kNever;
  const auto denies = [](const Answers& all) { return all.denials >= kDenialsPerAddress; };
  if (std::all_of(answers_.begin(), answers_.end(), denies)) {
    return finish(
        Status(cause.code(),
               fmt::format("rank {} at {}: {}", peer_, to_text(target()), cause.message()), peer_));
  }
  polled_in_attempt_ = Duration{};
  if (target_index_ == 0) first_cause_ = cause.message();
  if (target_index_ + 1 == targets_.size()) return next_round(cause);
  ++target_index_;
  // The event loop calls it: a long list must not become a deep stack.
  const std::uint64_t attempt = attempt_;
  timer_.expires_after(Duration{});
  timer_.async_wait([self = shared_from_this(), attempt](const auto& error) {
    if (!error && self->done_ && attempt == self->attempt_) self->attempt();
  });
}

void Dial::next_round(const Status& cause) {
  if (is_out_of_reach()) return finish(out_of_reach());
  const std::string where = to_text(target());
  target_index_ = 0;
  if (leaving_) {
    return finish(Status(ErrorCode::kRankLeft,
                         fmt::format("rank {} at {} is gone: {}", peer_, where, cause.message()),
                         peer_));
  }
  if (!warned_ && polled_ > kWarnAfter) {
    warned_ = true;
    log::warning(fmt::format("rank {} has not reached rank {} at {} yet: {}; it keeps trying",
                             options_.rank, peer_, where, cause.message()));
  }
  pause_and_retry();
}

// An address that has let this rank in leads to the peer, which may look at it at any time.
bool Dial::is_out_of_reach() const {
  const auto is_shut = [](const Answers& all) {
    return !all.let_in || all.denials >= kDenialsPerAddress;
  };
  return std::all_of(answers_.begin(), answers_.end(), is_shut) && watch_.is_over(Clock::now());
}

// Addresses that other hosts have too come last.
Status Dial::out_of_reach() const {
  const std::size_t others = targets_.size() - 1;
  const std::string besides =
      others == 0 ? "" : fmt::format(" (nor at {} more of its addresses)", others);
  return {ErrorCode::kRankFailed,
          fmt::format("cannot connect to rank {} at {}{}: {}", peer_, to_text(targets_.front()),
                      besides, first_cause_),
          peer_};
}

// Another address of the peer would take as much.
void Dial::on_shortage(const std::string& what) {
  watch_.restart();
  if (++shortages_ < kShortagesMax) return pause_and_retry();
  finish(no_connections(options_.rank, what));
}

void Dial::pause_and_retry() {
  const std::uint64_t attempt = ++attempt_;
  timer_.expires_after(watch_.pause(pause_, Clock::now()));
  pause_ = std::min(pause_ * 2, kPauseMax);
  timer_.async_wait([self = shared_from_this(), attempt](const auto& error) {
    if (!error && self->done_ && attempt == self->attempt_) self->attempt();
  });
}

void Dial::finish(Result<Connection> result) {
  const Done done = std::exchange(done_, nullptr);
  cancel();
  if (done) done(std::move(result));
}

}  // namespace unisono::tcp
