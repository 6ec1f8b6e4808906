// Ties connector and links together. The polling order is the hot path: sockets that stand pay one
// receive per poll, and the event loop of the connector is entered now and then only.
#include "transports/tcp/stream_transport.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/assert.h"
#include "base/errno_text.h"
#include "transports/tcp/connector.h"
#include "transports/tcp/peer_link.h"
#include "transports/tcp/shortage.h"

namespace unisono {
namespace tcp {
namespace {

// Up to so many streams are asked one by one; above, one epoll_wait says which have something.
constexpr std::size_t kAskedDirectlyMax = 4;
constexpr int kEventsPerPoll = 64;
// How often the connector runs beside standing links, in polls and in time, while nobody is being
// connected and while somebody is.
constexpr int kQuietPolls = 64;
constexpr int kBusyPolls = 8;
constexpr Duration kQuietTime = std::chrono::microseconds(200);
constexpr Duration kBusyTime = std::chrono::microseconds(20);

class StreamTransport final : public Transport, private ConnectorEvents {
 public:
  explicit StreamTransport(StreamOptions options)
      : options_(std::move(options)),
        links_(static_cast<std::size_t>(options_.size)),
        no_memory_(no_connections(options_.rank, "out of memory")) {}

  Status open();

  std::string_view name() const override {
    return options_.family == StreamOptions::Family::kTcp ? "tcp" : "unix";
  }
  // A grant costs as much as some 30 KiB (README.md).
  EndpointTraits traits() const override { return {.eager_bytes_max = 32 * 1024}; }
  std::string address() const override { return address_; }
  void set_identity(const std::string& job_id, const JobKey& key) override {
    options_.job_id = job_id;
    options_.key = key;
  }
  Status set_peers(std::vector<std::string> addresses) override;
  Endpoint& endpoint(Rank peer) override;
  bool poll(FrameSink& sink) override;
  bool has_unsent() const override;
  void give_up(Rank peer, FrameSink& sink) override;
  void close(TimePoint deadline, FrameSink& sink) override;

 private:
  struct Failure {
    Rank peer;
    Status cause;
    bool of_dialling = false;  // void if the peer's own connection has come meanwhile
  };

  Admission admit(Rank peer, std::uint16_t stream) override;
  void connected(Connection connection) override;
  void dial_failed(Rank peer, std::uint16_t stream, const Status& cause) override;
  void accept_failed(const Status& cause) override;

  PeerLink& link(Rank peer);
  void dial(PeerLink& link);
  bool connector_due(bool moved);
  bool poll_connector(FrameSink& sink);
  bool run_connector(FrameSink& sink);
  void end_unfinished(FrameSink& sink);
  std::size_t streams_to(PeerLink& link) const;
  void want_more_streams();
  void dial_further(PeerLink& link);
  bool poll_each(FrameSink& sink);
  bool poll_ready(FrameSink& sink);
  void forget_ended();
  void look_for_silence(FrameSink& sink);
  void begin_leaving(FrameSink& sink);
  bool settled() const;

  StreamOptions options_;
  std::unique_ptr<Connector> connector_;
  std::string address_;
  UniqueFd epoll_;
  std::vector<std::unique_ptr<PeerLink>> links_;  // by rank, made when needed
  std::vector<PeerLink*> made_;                   // in that order
  std::vector<std::vector<Target>> targets_;      // by rank; empty before set_peers()
  std::vector<PeerLink*> active_;                 // stream 0 attached, not ended
  std::vector<PeerLink*> fresh_;                  // got a stream since they were last served
  std::vector<Failure> failures_;                 // to be reported by the next poll
  const Status no_memory_;                        // why a link ends that cannot be made
  int shortages_ = 0;                             // of memory, since a stream came about
  std::size_t stream_count_ = 0;
  int polls_since_connector_ = 0;
  TimePoint silence_looked_for_;
  TimePoint connector_polled_{};
  // Streams that came about while this rank was leaving. The peer may have taken one already, and
  // would take its end for that of a link whose goodbye is still under way.
  std::vector<UniqueFd> unused_;
  bool leaving_ = false;
  bool closed_ = false;
};

Status StreamTransport::open() {
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) {
    return {ErrorCode::kOutOfResources,
            fmt::format("rank {} cannot wait for its connections (epoll_create1): {}",
                        options_.rank, errno_text(errno))};
  }
  UNISONO_ASSIGN(connector_, Connector::open(options_, *this));
  address_ = connector_->address();
  return {};
}

Status StreamTransport::set_peers(std::vector<std::string> addresses) {
  if (addresses.size() != links_.size()) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("{} addresses for {} ranks; give one per world rank", addresses.size(),
                        links_.size())};
  }
  std::vector<std::vector<Target>> targets(addresses.size());
  for (std::size_t rank = 0; rank < addresses.size(); ++rank) {
    if (addresses[rank].empty()) continue;
    auto parsed = parse_address(addresses[rank]);
    if (!parsed) {
      return {ErrorCode::kInvalidArgument,
              fmt::format("the address of rank {}: {}", rank, parsed.error().message())};
    }
    const bool is_unix = parsed->front().address.ss_family == AF_UNIX;
    if (is_unix != (options_.family == StreamOptions::Family::kUnix)) {
      return {ErrorCode::kInvalidArgument, fmt::format("the address of rank {}, '{}', is not for "
                                                       "the {} transport",
                                                       rank, addresses[rank], name())};
    }
    targets[rank] = std::move(*parsed);
  }
  targets_ = std::move(targets);
  for (PeerLink* each : made_) {
    if (each->state() == LinkState::kDialling) dial(*each);
  }
  return {};
}

PeerLink& StreamTransport::link(Rank peer) {
  auto& place = links_[static_cast<std::size_t>(peer)];
  if (!place) {
    auto made = std::make_unique<PeerLink>(options_.rank, peer, options_.checksum);
    // What a peer has admitted has its place in every list.
    if (made_.size() == made_.capacity()) made_.reserve(2 * made_.size() + 8);
    active_.reserve(made_.capacity());
    fresh_.reserve(made_.capacity());
    made_.push_back(made.get());
    place = std::move(made);
  }
  return *place;
}

Endpoint& StreamTransport::endpoint(Rank peer) {
  UNISONO_ASSERT(peer >= 0 && peer < options_.size && peer != options_.rank,
                 "an endpoint is for another rank of the world");
  PeerLink& wanted = link(peer);
  if (wanted.state() == LinkState::kIdle && !leaving_) {
    if (!targets_.empty()) dial(wanted);
    wanted.wanted();
  }
  return wanted;
}

void StreamTransport::dial(PeerLink& link) {
  const auto& targets = targets_[static_cast<std::size_t>(link.peer())];
  if (targets.empty()) {
    failures_.push_back(
        {link.peer(),
         Status(ErrorCode::kUnsupported,
                fmt::format("rank {} has no address for the {} transport", link.peer(), name()),
                link.peer())});
    return;
  }
  connector_->dial(link.peer(), 0, targets);
}

Admission StreamTransport::admit(Rank peer, std::uint16_t stream) {
  PeerLink& to = link(peer);
  const Admission answer = to.admit(stream, connector_->dial_connected(peer, stream));
  if (answer != Admission::kAdmitted || stream == 0) return answer;
  try {
    to.prepare_stream();
  } catch (const std::bad_alloc&) {
    return Admission::kUnwanted;
  }
  return answer;
}

void StreamTransport::connected(Connection connection) {
  PeerLink& to = link(connection.peer);
  // Where both ranks dialled, this one's attempt ends here.
  connector_->cancel(connection.peer, connection.stream);
  if (to.state() == LinkState::kLeaving) unused_.push_back(std::move(connection.fd));
  if (to.state() >= LinkState::kLeaving) return;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = static_cast<std::uint64_t>(connection.peer) << 16 | connection.stream;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection.fd.get(), &event) != 0) {
    const bool is_scarce = errno == ENOSPC || errno == ENOMEM;
    failures_.push_back(
        {connection.peer,
         Status(is_scarce ? ErrorCode::kOutOfResources : ErrorCode::kSystem,
                fmt::format("rank {} cannot watch its connection to rank {}: {} (at most "
                            "fs.epoll.max_user_watches for each user)",
                            options_.rank, connection.peer, errno_text(errno)),
                options_.rank)});
    return;
  }
  const bool first = connection.stream == 0;
  to.attach(std::move(connection));
  if (first) active_.push_back(&to);
  if (std::find(fresh_.begin(), fresh_.end(), &to) == fresh_.end()) fresh_.push_back(&to);
  ++stream_count_;
  shortages_ = 0;
  if (leaving_) to.leave();
}

void StreamTransport::dial_failed(Rank peer, std::uint16_t stream, const Status& cause) {
  if (stream == 0) return failures_.push_back({peer, cause, true});
  link(peer).spare_stream();
  if (!link(peer).stream(0).finished()) return;
  // The peer has gone, and what it sent on the stream that did not come about is lost.
  failures_.push_back({peer, Status(ErrorCode::kRankFailed, cause.message(), peer)});
}

// Whoever waits may be any peer without a link, and a stranger where there is none.
void StreamTransport::accept_failed(const Status& cause) {
  for (Rank peer = 0; peer < options_.size; ++peer) {
    if (peer == options_.rank || link(peer).state() >= LinkState::kStanding) continue;
    failures_.push_back({peer, cause});
    return;
  }
}

bool StreamTransport::connector_due(bool moved) {
  if (active_.empty()) return true;
  const bool busy = connector_->busy();
  if (++polls_since_connector_ >= (busy ? kBusyPolls : kQuietPolls)) return true;
  return !moved && Clock::now() - connector_polled_ >= (busy ? kBusyTime : kQuietTime);
}

bool StreamTransport::poll_connector(FrameSink& sink) {
  polls_since_connector_ = 0;
  connector_polled_ = Clock::now();
  const bool moved = run_connector(sink);
  if (!leaving_) want_more_streams();
  look_for_silence(sink);
  for (const Failure& failure : std::exchange(failures_, {})) {
    PeerLink& of = link(failure.peer);
    if (failure.of_dialling && of.state() != LinkState::kDialling) continue;
    of.end(failure.cause, sink);
  }
  // Epoll does not know of frames that came in one piece with the handshake.
  while (!fresh_.empty()) {
    PeerLink* const each = fresh_.back();
    fresh_.pop_back();
    each->progress(sink);
  }
  return moved;
}

// Thrown is what goes on: then whoever waits for a peer that cannot come in is told.
bool StreamTransport::run_connector(FrameSink& sink) {
  try {
    return connector_->poll();
  } catch (const std::bad_alloc&) {
    end_unfinished(sink);
    if (++shortages_ >= kShortagesMax) throw;
    return true;
  }
}

// Nobody knows whose turn it was.
void StreamTransport::end_unfinished(FrameSink& sink) {
  for (PeerLink* each : made_) {
    const auto next = static_cast<std::uint16_t>(each->stream_count());
    const bool is_awaited =
        each->state() == LinkState::kDialling || connector_->may_be_admitted(each->peer(), next);
    if (is_awaited) each->end(no_memory_, sink);
  }
  connector_->drop_unfinished();
}

// Within a host a second stream gives the sender no second core, and halves what it hands over at
// once.
std::size_t StreamTransport::streams_to(PeerLink& link) const {
  if (options_.streams != 0) return static_cast<std::size_t>(options_.streams);
  return link.stream(0).same_host() ? 1 : 2;
}

void StreamTransport::want_more_streams() {
  for (PeerLink* each : active_) {
    const std::size_t standing = each->stream_count();
    if (each->state() != LinkState::kStanding || each->extra_dialled() >= standing) continue;
    if (standing >= streams_to(*each)) continue;
    if (each->data_bytes() < standing * options_.extra_stream_after_bytes) continue;
    each->set_extra_dialled(standing);
    dial_further(*each);
  }
}

// Once: a stream that does not come about is one less, not a fault.
void StreamTransport::dial_further(PeerLink& link) {
  if (targets_.empty()) return;
  const auto& targets = targets_[static_cast<std::size_t>(link.peer())];
  if (targets.empty()) return;
  try {
    link.prepare_stream();
    connector_->dial(link.peer(), static_cast<std::uint16_t>(link.stream_count()), targets);
  } catch (const std::bad_alloc&) {
    link.spare_stream();
  }
}

bool StreamTransport::poll_each(FrameSink& sink) {
  bool moved = false;
  for (PeerLink* each : active_) moved = each->progress(sink) || moved;
  return moved;
}

bool StreamTransport::poll_ready(FrameSink& sink) {
  bool moved = false;
  epoll_event events[kEventsPerPoll];
  const int ready = ::epoll_wait(epoll_.get(), events, kEventsPerPoll, 0);
  for (int i = 0; i < ready; ++i) {
    PeerLink& each = link(static_cast<Rank>(events[i].data.u64 >> 16));
    if (each.state() == LinkState::kEnded) continue;
    moved = each.stream(events[i].data.u64 & 0xffff).receive(sink) || moved;
    each.check_end(sink);
  }
  for (PeerLink* each : active_) {
    // What was posted may have failed at once, and left nothing queued.
    if (!each->has_queued() && !each->send_failed()) continue;
    moved = each->send_queued(sink) || moved;
    each->check_end(sink);
  }
  return moved;
}

bool StreamTransport::poll(FrameSink& sink) {
  if (closed_) return false;
  bool moved = stream_count_ <= kAskedDirectlyMax ? poll_each(sink) : poll_ready(sink);
  if (connector_due(moved)) moved = poll_connector(sink) || moved;
  forget_ended();
  return moved;
}

void StreamTransport::forget_ended() {
  const auto ended = [](const PeerLink* each) { return each->state() == LinkState::kEnded; };
  if (std::none_of(active_.begin(), active_.end(), ended)) return;
  for (PeerLink* each : active_) {
    if (!ended(each)) continue;
    stream_count_ -= each->stream_count();
    connector_->cancel(each->peer(), static_cast<std::uint16_t>(each->stream_count()));
  }
  std::erase_if(active_, ended);
}

void StreamTransport::look_for_silence(FrameSink& sink) {
  const bool is_watched = options_.family == StreamOptions::Family::kTcp &&
                          options_.unacknowledged_max > Duration::zero();
  if (!is_watched) return;
  const Duration pause = tcp::AckWatch::look_every(options_.unacknowledged_max);
  if (connector_polled_ - silence_looked_for_ < pause) return;
  silence_looked_for_ = connector_polled_;
  for (PeerLink* each : active_) {
    each->look_for_silence(connector_polled_, options_.unacknowledged_max, sink);
  }
}

void StreamTransport::begin_leaving(FrameSink& sink) {
  leaving_ = true;
  connector_->leave();
  for (PeerLink* each : made_) {
    // A peer that has taken the connection already waits for a goodbye.
    const bool has_something_to_say =
        (each->has_queued() && !targets_.empty()) || connector_->may_be_admitted(each->peer(), 0);
    if (each->state() <= LinkState::kDialling && !has_something_to_say) {
      connector_->cancel(each->peer(), 0);
      each->drop(sink);
    } else if (each->state() == LinkState::kStanding) {
      each->leave();  // a dial of one more stream goes on: see unused_
    }
  }
}

bool StreamTransport::has_unsent() const {
  return std::any_of(made_.begin(), made_.end(),
                     [](const PeerLink* each) { return each->has_queued(); });
}

void StreamTransport::give_up(Rank peer, FrameSink& sink) {
  PeerLink* const found = links_[static_cast<std::size_t>(peer)].get();
  if (found == nullptr || closed_) return;
  connector_->cancel(peer, 0);
  connector_->cancel(peer, static_cast<std::uint16_t>(found->stream_count()));
  found->drop(sink);
  forget_ended();
}

bool StreamTransport::settled() const {
  return std::all_of(made_.begin(), made_.end(), [](PeerLink* each) { return each->settled(); });
}

void StreamTransport::close(TimePoint deadline, FrameSink& sink) {
  if (closed_) return;
  begin_leaving(sink);
  for (int idle = 0;; ++idle) {
    poll(sink);
    for (PeerLink* each : active_) each->send_queued(sink);
    // After one turn at least: a deadline in the past still says goodbye.
    if (settled() || Clock::now() >= deadline) break;
    // Peers take their time: give them the core, and sleep when that does not help.
    if (idle < 1000) {
      ::sched_yield();
    } else {
      epoll_event event;
      ::epoll_wait(epoll_.get(), &event, 1, 1);
    }
  }
  for (PeerLink* each : made_) each->drop(sink);
  active_.clear();
  unused_.clear();
  connector_.reset();
  closed_ = true;
}

}  // namespace
}  // namespace tcp

Result<std::unique_ptr<Transport>> make_stream_transport(StreamOptions options) {
  const auto refuse = [](std::string message) {
    return Status(ErrorCode::kInvalidArgument, std::move(message));
  };
  if (options.size < 1 || options.rank < 0 || options.rank >= options.size) {
    return refuse(fmt::format("rank {} of {} ranks does not exist", options.rank, options.size));
  }
  if (options.job_id.size() > 64) {
    return refuse(
        fmt::format("a job id of {} bytes; at most 64 are allowed", options.job_id.size()));
  }
  if (options.streams < 0 || options.streams > kStreamsMax) {
    return refuse(fmt::format("{} streams per peer; 0 to {} are allowed (UNISONO_STREAMS)",
                              options.streams, kStreamsMax));
  }
  auto transport = std::make_unique<tcp::StreamTransport>(std::move(options));
  UNISONO_TRY(transport->open());
  return std::unique_ptr<Transport>(std::move(transport));
}

Probe probe_stream_transport(StreamOptions::Family family) {
  const bool is_unix = family == StreamOptions::Family::kUnix;
  for (const int domain : is_unix ? std::vector{AF_UNIX} : std::vector{AF_INET, AF_INET6}) {
    if (UniqueFd(::socket(domain, SOCK_STREAM | SOCK_CLOEXEC, 0))) return {true, ""};
  }
  return {false,
          fmt::format("no {} sockets here: {}", is_unix ? "UNIX" : "TCP", std::strerror(errno))};
}

}  // namespace unisono
