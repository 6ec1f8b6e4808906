#include "rendezvous/arbiter_loop.h"

#include <fmt/format.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "base/errno_text.h"
#include "base/log.h"

namespace unisono::rendezvous {
namespace {

// More than there can be strangers, so that what they have said is read before one is judged.
constexpr int kEventsPerWait = 4 * static_cast<int>(kStrangersMax);
// Then those that are in have their turn again.
constexpr int kAcceptsPerTurn = 16;
// How long the reason of a failed rendezvous waits for ranks that have not arrived and for slow
// sockets.
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

std::string bytes_of(const FailureDecider::Outgoing& outgoing) {
  switch (outgoing.type) {
    case MessageType::kAskCalls:
      return encode_question(outgoing.decision.communicator);
    case MessageType::kAskWaits:
      return encode(MessageType::kAskWaits);
    default:
      return encode(MessageType::kDecision, outgoing.decision);
  }
}

Status why_declined(Rank rank, const Message& message) {
  const Status why = decode_refusal(message.body);
  return {why.code(), fmt::format("rank {} cannot take part: {}", rank, why.message()), rank};
}

}  // namespace

Result<std::unique_ptr<ArbiterLoop>> ArbiterLoop::open(ArbiterOptions options, UniqueFd rank_zero,
                                                       int stop) {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) {
    return Status(ErrorCode::kOutOfResources,
                  "rank 0 cannot start its arbiter (epoll_create1): " + errno_text(errno), 0);
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
      rendezvous_(options_.size, options_.started),
      shrinks_(options_.size, options_.self),
      silence_(options_.silence, Clock::now()),
      backlog_bytes_max_(kBacklogBytesMax),
      serves_(options_.members.empty()),
      now_(Clock::now()),
      stop_(stop),
      epoll_(std::move(epoll)) {
  if (options_.members.empty()) return;
  phase_ = Phase::kStandingBy;
  succession_.emplace(options_.self, options_.size);
}

void ArbiterLoop::run() {
  while (phase_ != Phase::kDone) {
    epoll_event events[kEventsPerWait];
    const int count =
        ::epoll_wait(epoll_.get(), events, kEventsPerWait, timeout_ms(next_due(), Clock::now()));
    const bool broken = count < 0 && errno != EINTR;
    now_ = Clock::now();
    if (broken) {
      log::error(fmt::format("rank {}: the arbiter cannot wait for its connections; it stops",
                             options_.self));
      break;
    }
    silence_.on_wake(now_);
    // What has been said counts when a newcomer needs a place.
    for (int i = 0; i < count; ++i) on_connection(events[i].data.fd);
    for (int i = 0; i < count; ++i) {
      if (const Listener* listener = listener_at(events[i].data.fd)) accept_from(*listener);
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
          fmt::format("rank 0's arbiter cannot wait for a connection (epoll_ctl): {}; raise sysctl "
                      "fs.epoll.max_user_watches",
                      errno_text(errno)),
          0};
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
    if (arrival && succession_) return seat_again(std::move(*arrival));
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
  const auto earlier = find_seat(rank);
  // A rank that lost its connection and came back may be seen before the loss is.
  if (earlier != seats_.end()) read_seat(earlier->first);
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
  seats_.emplace(fd, std::move(seat));
  // What came along with its join makes no event of its own.
  read_seat(fd);
  if (phase_ == Phase::kGathering && rendezvous_.complete()) welcome();
}

std::map<int, ArbiterLoop::Seat>::iterator ArbiterLoop::find_seat(Rank rank) {
  return std::find_if(seats_.begin(), seats_.end(),
                      [&](const auto& seat) { return seat.second.rank == rank; });
}

// Reading may end seats.
void ArbiterLoop::read_all_seats() {
  std::vector<int> fds;
  for (const auto& [fd, seat] : seats_) fds.push_back(fd);
  for (const int fd : fds) read_seat(fd);
}

void ArbiterLoop::read_seat(int fd) {
  const auto entry = seats_.find(fd);
  Seat& seat = entry->second;
  write_seat(&seat);
  const std::size_t known = seat.stream.input().size();
  const bool open = seat.stream.receive();
  if (seat.stream.input().size() > known && silence_.listens_for(seat.rank)) {
    silence_.on_heard(seat.rank, now_);
  }
  Status outcome;
  bool left = false, gave_up = false;
  while (outcome.ok() && !left && !gave_up) {
    auto message = seat.stream.next();
    if (!message) {
      outcome = message.error();
    } else if (!*message) {
      break;
    } else if ((*message)->type == MessageType::kGoodbye) {
      left = true;
    } else if (succession_ && (*message)->type == MessageType::kGiveUp) {
      gave_up = true;
    } else {
      outcome = on_message(&seat, **message);
    }
  }
  if (open && outcome.ok() && !left && !gave_up) return;

  const Rank rank = seat.rank;
  // It has given up before it had an answer, and comes anew; if not, it is silent.
  const bool may_return = gave_up || (outcome.ok() && !left && succession_ && seat.is_new);
  if (phase_ == Phase::kServing && may_return) {
    succession_->on_withdrawn(rank);
    decider_->await(rank);
  } else if (phase_ == Phase::kServing) {
    // Of two decisions on a rank the second is not told, so this one may not come.
    shrinks_.on_gone(rank,
                     {left ? ErrorCode::kRankLeft : ErrorCode::kRankFailed,
                      fmt::format("rank {} {} the job", rank, left ? "left" : "is lost to"), rank});
    if (left) {
      decider_->on_goodbye(rank);
    } else if (!outcome) {
      decider_->on_violation(rank, outcome.message());
    } else {
      decider_->on_closed(rank, "closed without goodbye");
    }
    if (rank == options_.self && left) own_rank_left_ = true;
    if (left) tell_departure(rank);
    silence_.forget(rank);
  } else if (phase_ == Phase::kGathering) {
    rendezvous_.depart(rank, now_);
  } else if (phase_ == Phase::kStandingBy) {
    succession_->on_withdrawn(rank);
    if (left) succession_->on_gone(rank);
  }
  seat.stream.close();
  seats_.erase(entry);
  // Fails nothing but a rendezvous that still gathers.
  if (rank == 0) fail({ErrorCode::kRendezvous, "rank 0 gave up before all ranks had arrived", 0});
}

Status ArbiterLoop::on_message(Seat* seat, const Message& message) {
  if (phase_ == Phase::kStandingBy) {
    return {ErrorCode::kProtocol, fmt::format("rank {} spoke before its turn", seat->rank)};
  }
  if (phase_ != Phase::kServing) return on_message_while_gathering(*seat, message);
  switch (message.type) {
    case MessageType::kWaiting: {
      UNISONO_ASSIGN(WaitMessage wait, decode_wait(message.body, options_.size));
      decider_->on_waiting(seat->rank, std::move(wait));
      return {};
    }
    case MessageType::kTimedOut: {
      UNISONO_ASSIGN(WaitMessage wait, decode_wait(message.body, options_.size));
      decider_->on_timed_out(seat->rank, std::move(wait), now_);
      return {};
    }
    case MessageType::kWaits: {
      UNISONO_ASSIGN(WaitsMessage waits, decode_waits(message.body, options_.size));
      decider_->on_waits(seat->rank, std::move(waits), now_);
      return {};
    }
    case MessageType::kFailure: {
      UNISONO_ASSIGN(FailureDecision decision, decode_decision(message.body, options_.size));
      decider_->on_failure(std::move(decision));
      return {};
    }
    case MessageType::kBrokenLink: {
      UNISONO_ASSIGN(const BrokenLinkMessage link, decode_broken_link(message.body, options_.size));
      decider_->on_broken_link(seat->rank, link, now_);
      return {};
    }
    case MessageType::kDiffering:
    case MessageType::kCalls: {
      UNISONO_ASSIGN(CallsMessage calls, decode_calls(message.type, message.body, options_.size));
      if (message.type == MessageType::kCalls) {
        decider_->on_calls(seat->rank, std::move(calls));
      } else {
        decider_->on_differing(seat->rank, std::move(calls), now_);
      }
      return {};
    }
    case MessageType::kShrink: {
      UNISONO_ASSIGN(ShrinkMessage shrink, decode_shrink(message.body, options_.size));
      return shrinks_.on_message(seat->rank, std::move(shrink), now_);
    }
    case MessageType::kBeat:
      return {};
    case MessageType::kDeposed: {
      UNISONO_ASSIGN(DeposedMessage deposed, decode_deposed(message.body, options_.size));
      // The word of one that was cut off for a while, while this arbiter served the others, is
      // about itself.
      if (decider_->is_here(seat->rank) && silence_.was_stopped(now_)) deposed_ = deposed;
      return {};
    }
    case MessageType::kGiveUp:
      return {};                   // crossed the welcome on its way
    case MessageType::kDecline: {  // so did this
      const Status why = why_declined(seat->rank, message);
      decider_->on_failure({why.code(), seat->rank, kEveryCommunicator, 0, why.message()});
      return {};
    }
    default:
      return {ErrorCode::kProtocol,
              fmt::format("a message of unknown type {}", static_cast<int>(message.type))};
  }
}

Status ArbiterLoop::on_message_while_gathering(const Seat& seat, const Message& message) {
  if (phase_ == Phase::kEnding) return {};
  if (message.type == MessageType::kDecline) {
    fail(why_declined(seat.rank, message));
  } else if (message.type == MessageType::kGiveUp) {
    if (!rendezvous_.complete()) fail(rendezvous_.overdue(now_));
  } else {
    return {ErrorCode::kProtocol, fmt::format("rank {} spoke before its turn", seat.rank)};
  }
  return {};
}

void ArbiterLoop::on_timers() {
  if (phase_ == Phase::kGathering) {
    if (const Status lost = rendezvous_.lost(now_); !lost) fail(lost);
    if (now_ >= options_.deadline) fail(rendezvous_.overdue(now_));
  }
  if (phase_ == Phase::kGathering || phase_ == Phase::kEnding || succession_) {
    strangers_.expire(now_);
    watch_listeners();
  }
  if (deposed_) return abdicate();
  if (succession_) look_after_succession();
  if (phase_ == Phase::kServing) look_after_silence();
  if (phase_ == Phase::kServing) say_decisions();
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
  decider_.emplace(members);
  for (auto& [fd, seat] : seats_) {
    silence_.on_heard(seat.rank, now_);
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

void ArbiterLoop::say_decisions() {
  const std::vector<FailureDecider::Outgoing> decided = decider_->take(now_);
  for (const FailureDecider::Outgoing& outgoing : decided) {
    if (outgoing.type != MessageType::kDecision) continue;
    log::info(outgoing.decision.message);
    if (outgoing.target == -1) shrinks_.on_decision(outgoing.decision);
  }
  const std::vector<ShrinkAgreements::Outgoing> agreed = shrinks_.take(now_);
  for (FailureDecision& decision : shrinks_.take_decisions()) {
    decider_->on_failure(std::move(decision));
  }
  if (decided.empty() && agreed.empty()) return;
  std::map<Rank, Seat*> by_rank;
  for (auto& [fd, seat] : seats_) by_rank.emplace(seat.rank, &seat);
  const auto send_to = [&](Rank target, const std::shared_ptr<const std::string>& bytes) {
    const auto found = by_rank.find(target);
    if (found != by_rank.end()) send(found->second, bytes);
  };
  for (const FailureDecider::Outgoing& outgoing : decided) {
    const auto bytes = std::make_shared<const std::string>(bytes_of(outgoing));
    remember(outgoing.target, bytes);
    if (outgoing.target != -1) {
      send_to(outgoing.target, bytes);
    } else {
      for (auto& [rank, seat] : by_rank) send(seat, bytes);
    }
  }
  // After the decisions, so that who is told with whom to go on knows why.
  for (const ShrinkAgreements::Outgoing& outgoing : agreed) {
    send_to(outgoing.target,
            std::make_shared<const std::string>(encode_shrink(outgoing.message, options_.size)));
  }
}

void ArbiterLoop::stop() {
  // A goodbye may have arrived in the same moment as the end of the process.
  read_all_seats();
  if (phase_ == Phase::kGathering) {
    fail({ErrorCode::kRendezvous, "rank 0's process ended before all ranks had arrived", 0});
  } else if (phase_ == Phase::kServing) {
    if (!own_rank_left_) {
      decider_->on_closed(options_.self, "ended with its process, without goodbye");
    }
    say_decisions();
  }
  if (own_rank_left_ && (phase_ == Phase::kServing || phase_ == Phase::kStandingBy)) {
    const auto farewell = std::make_shared<const std::string>(encode(MessageType::kFarewell));
    for (auto& [fd, seat] : seats_) send(&seat, farewell);
    if (succession_) turn_away_newcomers();
  }
  for (auto& [fd, seat] : seats_) seat.stream.close();
  seats_.clear();
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
  // A successor whose own rank has left at once still tells those that are on their way.
  const bool awaits_none = !succession_ || succession_->next_due() == kNever;
  if (phase_ == Phase::kServing && seats_.empty() && awaits_none) phase_ = Phase::kDone;
  if (phase_ != Phase::kEnding) return;
  const bool all_told = told_.size() == static_cast<std::size_t>(options_.size);
  const bool flushed = std::none_of(seats_.begin(), seats_.end(),
                                    [](const auto& seat) { return seat.second.writing; });
  if (!(flushed && all_told) && now_ < ending_until_) return;
  for (auto& [fd, seat] : seats_) seat.stream.close();
  seats_.clear();
  phase_ = Phase::kDone;
}

TimePoint ArbiterLoop::next_due() const {
  switch (phase_) {
    case Phase::kGathering:
      return std::min({options_.deadline, rendezvous_.next_due(), strangers_.next_due(now_)});
    case Phase::kStandingBy:
      return std::min(succession_->next_due(), strangers_.next_due(now_));
    case Phase::kServing: {
      const TimePoint due =
          std::min({decider_->next_due(), shrinks_.next_due(), silence_.next_due()});
      if (!succession_) return due;
      return std::min({due, succession_->next_due(), strangers_.next_due(now_)});
    }
    case Phase::kEnding:
      return std::min(ending_until_, strangers_.next_due(now_));
    case Phase::kDone:
      break;
  }
  return kNever;
}

}  // namespace unisono::rendezvous
