#include "rendezvous/arbiter/arbiter_loop.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <vector>

#include "base/errno_text.h"
#include "base/log.h"
#include "base/suspended.h"

namespace unisono::rendezvous {
namespace {

// Events of strangers and listeners have room beside one of each rank, so that what all have said
// is read before one is judged.
constexpr std::size_t kOtherEvents = 4 * kStrangersMax;
// Then those that are in have their turn again.
constexpr int kAcceptsPerTurn = 16;
// How long the reason of a failed rendezvous, or a standby's farewell, waits for ranks that have
// not arrived and for slow sockets.
constexpr Duration kEndingTime = std::chrono::seconds(1);
// A rank that computes reads nothing for a while; what exceeds this and the table passes it by.
constexpr std::size_t kBacklogBytesMax = 1 << 20;
constexpr std::uint32_t kRead = EPOLLIN;
constexpr std::uint32_t kReadAndWrite = EPOLLIN | EPOLLOUT;

// Cleansed when the last connection has sent it.
std::shared_ptr<const std::string> secret_frame(std::string bytes) {
  return std::shared_ptr<std::string>(new std::string(std::move(bytes)), [](std::string* frame) {
    cleanse(frame);
    delete frame;
  });
}

}  // namespace

Result<std::unique_ptr<ArbiterLoop>> ArbiterLoop::open(ArbiterOptions options, GuardedFd rank_zero,
                                                       int stop) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) {
    return Status(ErrorCode::kOutOfResources,
                  fmt::format("rank {} cannot start its arbiter (epoll_create1): {}", options.self,
                              errno_text(errno)),
                  options.self);
  }
  std::unique_ptr<ArbiterLoop> loop(new ArbiterLoop(std::move(options), std::move(epoll), stop));
  UNISONO_TRY(loop->watch(stop, kRead));
  if (rank_zero) {
    UNISONO_TRY(loop->watch(loop->strangers_.add_local(std::move(rank_zero), loop->now_), kRead));
  }
  for (const Listener& listener : loop->options_.listeners) {
    UNISONO_TRY(loop->watch(listener.fd.get(), kRead));
  }
  return loop;
}

ArbiterLoop::ArbiterLoop(ArbiterOptions options, UniqueFd epoll, int stop)
    : options_(std::move(options)),
      strangers_({options_.handshake_job_id, options_.key, options_.self,
                  static_cast<int>(options_.members.size())}),
      rendezvous_(options_.size, options_.started, options_.comes_once,
                  warning_at(options_.started, options_.warn_after, options_.deadline)),
      beats_(options_.silence, Clock::now()),
      backlog_bytes_max_(kBacklogBytesMax),
      serves_(options_.members.empty()),
      now_(Clock::now()),
      stop_(stop),
      epoll_(std::move(epoll)) {
  if (options_.members.empty()) return;
  phase_ = Phase::kServing;
  begin_serving(options_.members);
}

void ArbiterLoop::begin_serving(const std::vector<Member>& members) {
  ServingArbiter::Options options{options_.self, !options_.members.empty(), options_.silence};
  if (options_.heard_at) {
    options.heard_at = [this] { return options_.heard_at->load(std::memory_order_relaxed); };
  }
  arbiter_.emplace(members, options, static_cast<ArbiterLinks&>(*this), now_);
}

void ArbiterLoop::run() {
  const std::size_t ranks =
      std::max(static_cast<std::size_t>(options_.size), options_.members.size());
  std::vector<epoll_event> events(kOtherEvents + ranks);
  while (phase_ != Phase::kDone) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                   timeout_ms(next_due(), Clock::now()));
    const bool broken = count < 0 && errno != EINTR;
    now_ = Clock::now();
    if (broken) {
      log::error(fmt::format("rank {}: the arbiter cannot wait for its connections; it stops",
                             options_.self));
      break;
    }
    if (arbiter_) arbiter_->on_turn(now_, time_suspended());
    // What has been said counts when a newcomer needs a place.
    const std::span ready(events.data(), static_cast<std::size_t>(std::max(count, 0)));
    for (const epoll_event& event : ready) {
      if (phase_ != Phase::kDone) on_connection(event.data.fd);
    }
    if (phase_ == Phase::kDone) break;  // nobody is taken in any more
    for (const epoll_event& event : ready) {
      if (const Listener* listener = listener_at(event.data.fd)) accept_from(*listener);
    }
    on_timers();
    settle();
  }
  close_listeners();
  seats_.clear();
}

Status ArbiterLoop::watch(int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) == 0 ||
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) {
    return {};
  }
  return {ErrorCode::kOutOfResources,
          fmt::format("rank {}'s arbiter cannot wait for a connection (epoll_ctl): {}; raise "
                      "sysctl fs.epoll.max_user_watches",
                      options_.self, errno_text(errno)),
          options_.self};
}

void ArbiterLoop::watch_listeners() {
  const bool wanted = strangers_.accepting(now_);
  if (wanted == listening_) return;
  listening_ = wanted;
  for (const Listener& listener : options_.listeners) {
    // A change of what is watched already, which needs no memory.
    static_cast<void>(watch(listener.fd.get(), wanted ? kRead : 0));
  }
}

void ArbiterLoop::close_listeners() {
  options_.listeners.clear();
  strangers_.clear();
}

const Listener* ArbiterLoop::listener_at(int fd) const {
  for (const Listener& listener : options_.listeners) {
    if (listener.fd.get() == fd) return &listener;
  }
  return nullptr;
}

void ArbiterLoop::on_connection(int fd) {
  if (fd == stop_) return stop();
  if (seats_.count(fd) > 0) return read_seat(fd);
  if (strangers_.holds(fd)) {
    auto arrival = strangers_.read(fd, now_);
    if (arrival && is_standbys()) return seat_again(std::move(*arrival));
    if (arrival) seat(std::move(*arrival));
  }
}

void ArbiterLoop::accept_from(const Listener& listener) {
  for (int i = 0; i < kAcceptsPerTurn && strangers_.accepting(now_); ++i) {
    const int fd = strangers_.accept(listener, now_);
    if (fd < 0) return;
    if (const Status watched = watch(fd, kRead); !watched) {
      strangers_.turn_away(fd, watched.message(), now_);
    }
  }
}

void ArbiterLoop::seat(Strangers::Arrival arrival) {
  const int fd = arrival.stream.fd();
  const Rank rank = arrival.join.member.rank;
  // A rank that lost its connection and came back may be seen before the loss is.
  if (rendezvous_.has_arrived(rank)) read_seat(find_seat(rank));
  if (phase_ == Phase::kEnding) {
    // A rank that knows looks for the next job.
    if (told_.insert(rank).second) arrival.stream.queue(refusal_);
    return arrival.stream.close();
  }
  const Status admitted = rendezvous_.admit(std::move(arrival.join.member), arrival.join.size);
  Seat seat{std::move(arrival.stream), rank, arrival.proved_key};
  if (!admitted) {
    // Not among seats_: its descriptor must not stand for a rank that sits elsewhere.
    fail(admitted);
    seat.stream.queue(refusal_);
    return seat.stream.close();
  }
  tell_who_awaits(&seats_.emplace(fd, std::move(seat)).first->second);
  // What came along with its join makes no event of its own.
  read_seat(fd);
  if (phase_ == Phase::kGathering && rendezvous_.complete()) welcome();
}

// From then on each expects to hear something.
void ArbiterLoop::tell_who_awaits(Seat* newcomer) {
  const Member* const rank_zero = rendezvous_.find(0);
  if (beats_.is_off() || rank_zero == nullptr) return;
  const auto word = std::make_shared<const std::string>(encode_awaiting(*rank_zero));
  if (newcomer->rank != 0) return send(newcomer, word);
  for (auto& [fd, seat] : seats_) send(&seat, word);
}

void ArbiterLoop::beat_while_gathering() {
  if (!beats_.take_beat(now_)) return;
  const auto beat = std::make_shared<const std::string>(encode(MessageType::kBeat));
  for (auto& [fd, seat] : seats_) {
    if (!seat.stream.has_output()) send(&seat, beat);
  }
}

void ArbiterLoop::seat_again(Strangers::Arrival arrival) {
  const int fd = arrival.stream.fd();
  const Rank rank = arrival.rejoin.rank;
  // With its own rank a standby takes over. Some may have given up already.
  if (rank == options_.self && !arbiter_->has_taken_over()) read_all_seats();
  seats_.emplace(fd, Seat{std::move(arrival.stream), rank, arrival.proved_key});
  arbiter_->on_rejoin(fd, std::move(arrival.rejoin), now_);
  // What came along with its greeting makes no event of its own.
  read_seat(fd);
  const auto seated = seats_.find(fd);
  if (seated != seats_.end()) seated->second.is_new = false;
}

// Ranks that come in the moment in which this one ends must not take it for dead; some have yet to
// prove who they are, and `awaits_more`: some may be on their way from the arbiter before.
void ArbiterLoop::turn_away_newcomers(bool awaits_more) {
  const TimePoint until = now_ + kEndingTime;
  for (;;) {
    for (const Listener& listener : options_.listeners) {
      for (std::size_t i = 0; i < kStrangersMax && strangers_.accepting(now_); ++i) {
        if (strangers_.accept(listener, now_) < 0) break;
      }
    }
    for (const int fd : strangers_.held()) {
      auto arrival = strangers_.read(fd, now_);
      if (!arrival) continue;
      arrival->stream.queue(encode(MessageType::kFarewell));
      arrival->stream.close();
    }
    std::vector<pollfd> awaited;
    for (const int fd : strangers_.held()) awaited.push_back({fd, POLLIN, 0});
    now_ = Clock::now();
    if ((awaited.empty() && !awaits_more) || now_ >= until) return;
    const bool accepts = strangers_.accepting(now_);
    for (const Listener& listener : options_.listeners) {
      if (accepts) awaited.push_back({listener.fd.get(), POLLIN, 0});
    }
    // An error would be one of memory: then all are read again.
    static_cast<void>(::poll(awaited.data(), awaited.size(), timeout_ms(until, now_)));
  }
}

int ArbiterLoop::find_seat(Rank rank) const {
  const auto found = std::find_if(seats_.begin(), seats_.end(),
                                  [&](const auto& seat) { return seat.second.rank == rank; });
  return found == seats_.end() ? -1 : found->first;
}

// Reading may end seats.
void ArbiterLoop::read_all_seats() {
  std::vector<int> fds;
  for (const auto& [fd, seat] : seats_) fds.push_back(fd);
  for (const int fd : fds) read_seat(fd);
}

void ArbiterLoop::read_seat(int fd) {
  const auto entry = seats_.find(fd);
  if (entry == seats_.end()) return;
  Seat& seat = entry->second;
  write_seat(&seat);
  const std::size_t known = seat.stream.input().size();
  const bool open = seat.stream.receive();
  if (!arbiter_) return hear_while_gathering(fd, open);
  if (seat.stream.input().size() > known) arbiter_->on_heard(fd, now_);
  hear_from(fd, open);
}

// The arbiter may close the seat at any message.
void ArbiterLoop::hear_from(int fd, bool open) {
  while (arbiter_->is_seated(fd)) {
    const auto message = seats_.at(fd).stream.next();
    if (!message) return arbiter_->on_violation(fd, message.error());
    if (!*message) break;
    arbiter_->on_message(fd, **message, now_);
  }
  if (open || !arbiter_->is_seated(fd)) return;
  const Seat& seat = seats_.at(fd);
  arbiter_->on_closed(fd, now_, {.is_new = seat.is_new, .is_end = seat.stream.has_ended()});
}

void ArbiterLoop::hear_while_gathering(int fd, bool open) {
  Seat& seat = seats_.at(fd);
  bool stays = open;
  for (;;) {
    const auto message = seat.stream.next();
    stays = stays && message;
    if (!message || !*message) break;
    if ((*message)->type == MessageType::kGoodbye ||
        !on_message_while_gathering(seat.rank, **message)) {
      stays = false;
      break;
    }
  }
  if (stays) return;
  const Rank rank = seat.rank;
  if (phase_ == Phase::kGathering) rendezvous_.depart(rank, now_, seat.stream.has_ended());
  close(fd);
  // Fails nothing but a rendezvous that still gathers.
  if (rank == 0) fail({ErrorCode::kRendezvous, "rank 0 gave up before all ranks had arrived", 0});
}

Status ArbiterLoop::on_message_while_gathering(Rank from, const Message& message) {
  if (phase_ == Phase::kEnding) return {};
  if (message.type == MessageType::kDecline) {
    fail(decode_decline(from, message.body));
  } else if (message.type == MessageType::kGiveUp) {
    if (!rendezvous_.complete()) fail(rendezvous_.overdue(now_));
  } else {
    return {ErrorCode::kProtocol, fmt::format("rank {} spoke before its turn", from)};
  }
  return {};
}

void ArbiterLoop::close(int fd) {
  const auto seat = seats_.find(fd);
  seat->second.stream.close();
  seats_.erase(seat);
}

void ArbiterLoop::on_timers() {
  if (phase_ == Phase::kGathering) {
    if (const std::string text = rendezvous_.take_warning(now_); !text.empty()) log::warning(text);
    if (const Status lost = rendezvous_.lost(now_); !lost) fail(lost);
    if (now_ >= options_.deadline) fail(rendezvous_.overdue(now_));
    beat_while_gathering();
  }
  if (!arbiter_ || is_standbys()) {
    strangers_.expire(now_);
    watch_listeners();
  }
  if (arbiter_) arbiter_->on_wake(now_);
}

void ArbiterLoop::welcome() {
  // First of all, so that no rank of this process's next job can end up here.
  close_listeners();
  phase_ = Phase::kServing;
  const std::vector<Member> members = rendezvous_.take_members();
  const auto table = std::make_shared<const std::string>(encode_members(members));
  const auto with_key =
      secret_frame(encode(WelcomeMessage{options_.size, options_.job_id, options_.key.to_hex()}));
  // Who came over TCP has proved that it knows the key, which must not travel there in the clear.
  const auto without_key = std::make_shared<const std::string>(
      encode(WelcomeMessage{options_.size, options_.job_id, SecretText()}));
  backlog_bytes_max_ = kBacklogBytesMax + table->size();
  begin_serving(members);
  for (auto& [fd, seat] : seats_) {
    arbiter_->seat(fd, seat.rank, now_);
    seat.stream.queue(seat.proved_key ? without_key : with_key);
    seat.stream.queue(table);
    write_seat(&seat);
  }
}

void ArbiterLoop::fail(const Status& why) {
  if (phase_ != Phase::kGathering) return;
  phase_ = Phase::kEnding;
  failed_ = true;
  ending_until_ = now_ + kEndingTime;
  refusal_ = std::make_shared<const std::string>(encode_refusal(why));
  for (auto& [fd, seat] : seats_) {
    told_.insert(seat.rank);
    send(&seat, refusal_);
  }
}

void ArbiterLoop::stop() {
  // A goodbye may have arrived in the same moment as the end of the process.
  read_all_seats();
  if (phase_ == Phase::kGathering) {
    fail({ErrorCode::kRendezvous, "rank 0's process ended before all ranks had arrived", 0});
  }
  const bool awaits_more = arbiter_ && arbiter_->awaits_ranks();
  if (arbiter_) arbiter_->stop(own_rank_left_, now_);
  if (is_standbys() && arbiter_->has_own_rank_left()) turn_away_newcomers(awaits_more);
  end();
}

void ArbiterLoop::end() {
  while (!seats_.empty()) close(seats_.begin()->first);
  phase_ = Phase::kDone;
}

void ArbiterLoop::send(Seat* seat, std::shared_ptr<const std::string> bytes) {
  if (!seat->stream.queue(std::move(bytes), backlog_bytes_max_)) {
    log::warning(fmt::format("rank {}: rank {} reads nothing; a message to it is dropped",
                             options_.self, seat->rank));
  }
  write_seat(seat);
}

void ArbiterLoop::write_seat(Seat* seat) {
  // A broken connection shows in the next read, which finds what the rank said before.
  static_cast<void>(seat->stream.flush());
  const bool writing = seat->stream.has_output();
  if (writing == seat->writing) return;
  seat->writing = writing;
  // A change of what is watched already, which needs no memory.
  static_cast<void>(watch(seat->stream.fd(), writing ? kReadAndWrite : kRead));
}

void ArbiterLoop::settle() {
  if (arbiter_ && arbiter_->is_done()) phase_ = Phase::kDone;
  if (phase_ != Phase::kEnding) return;
  const bool all_told = told_.size() == static_cast<std::size_t>(options_.size);
  const bool flushed = std::none_of(seats_.begin(), seats_.end(),
                                    [](const auto& seat) { return seat.second.writing; });
  if ((flushed && all_told) || now_ >= ending_until_) end();
}

TimePoint ArbiterLoop::next_due() const {
  switch (phase_) {
    case Phase::kGathering:
      return std::min({options_.deadline, rendezvous_.next_due(), strangers_.next_due(now_),
                       beats_.next_due()});
    case Phase::kServing: {
      const TimePoint due = arbiter_->next_due();
      return is_standbys() ? std::min(due, strangers_.next_due(now_)) : due;
    }
    case Phase::kEnding:
      return std::min(ending_until_, strangers_.next_due(now_));
    case Phase::kDone:
      break;
  }
  return kNever;
}

}  // namespace unisono::rendezvous
