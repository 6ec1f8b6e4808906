#include "rendezvous/control_connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/grace_periods.h"
#include "base/keep_latest.h"
#include "base/log.h"
#include "rendezvous/rank_text.h"

namespace unisono::rendezvous {
namespace {

// Reports beyond this, unread by a stuck arbiter, are dropped.
constexpr std::size_t kReportBytesMax = 1 << 20;
// More at a time is nothing that an arbiter asks.
constexpr std::size_t kQuestionsMax = 4096;
constexpr std::size_t kShrinkWordsMax = 4096;
// Lasting reports, of which a rank makes one for each call that fails.
constexpr std::size_t kReportsMax = 64;
// An arbiter that lives has answered by then; of one that is silent it shows later.
constexpr Duration kReportLasts = grace::kDecision;
// For how long leaving a job waits for somebody to tell.
constexpr std::chrono::seconds kLeaveTime{2};
// For how long until that one has heard it: a stopped arbiter does not, and leaving goes on.
constexpr std::chrono::milliseconds kGoodbyeTime{500};
// How often a rank that suspects the arbiter is told that it lives before it is itself cut off.
constexpr int kRefusalsMax = 3;
// How long a rank looks for who holds the arbiter: on a busy host standbys answer late.
constexpr Duration kSeekTime = std::chrono::seconds(10);
constexpr const char* kNonsense = "sent what no arbiter sends";

bool is_called(const Listener& listener) {
  return wait_ready(listener.fd.get(), false, TimePoint::min());
}

}  // namespace

ControlConnection::ControlConnection(ControlStream joined, const World& world,
                                     std::vector<Listener> standby,
                                     std::chrono::milliseconds silence)
    : world_(world),
      stream_(std::move(joined)),
      silence_(silence, Clock::now()),
      record_(world),
      standby_(std::move(standby)) {
  silence_.on_heard(holder_, Clock::now());
}

ControlConnection::~ControlConnection() {
  remove_from_control_thread(this);
  if (standby_loop_ != nullptr) end_standby(standby_loop_, false);
}

Status ControlConnection::start() {
  {
    // What came along with the table of members makes no event of its own.
    const std::lock_guard lock(mutex_);
    read(Clock::now());
  }
  return add_to_control_thread(this);
}

void ControlConnection::change(State state) {
  state_ = state;
  is_lost_.store(state == State::kAlone || state == State::kLeft, std::memory_order_release);
  sought_.notify_all();
}

// ---- What the rank says -------------------------------------------------------------------------

void ControlConnection::catch_up() {
  {
    const std::lock_guard lock(mutex_);
    if (state_ == State::kOpen) read(Clock::now());
  }
  wake_control_thread();  // for what follows from that
}

bool ControlConnection::send(std::string bytes) {
  if (state_ != State::kOpen && !suspects_) return false;
  if (!stream_.queue(std::move(bytes), kReportBytesMax)) {
    log::warning("the arbiter reads nothing; a report to it is dropped");
  }
  static_cast<void>(stream_.flush());
  return stream_.has_output();
}

void ControlConnection::keep(Report report) {
  keep_latest(std::move(report), kReportsMax, &reports_);
  drop_old_reports(Clock::now());
}

void ControlConnection::drop_old_reports(TimePoint now) {
  while (!reports_.empty() && reports_.front().when + kReportLasts + silence_.limit() < now) {
    reports_.pop_front();
  }
}

template <typename Saying>
void ControlConnection::say(Saying&& saying) {
  bool waits = false;
  {
    const std::lock_guard lock(mutex_);
    waits = saying();
  }
  if (waits) wake_control_thread();
}

void ControlConnection::report(std::string bytes) {
  say([&] { return send(std::move(bytes)); });
}

void ControlConnection::report_lasting(std::string bytes) {
  say([&] {
    keep({Clock::now(), bytes});
    return send(std::move(bytes));
  });
}

void ControlConnection::report_broken_link(Rank peer, const Status& cause) {
  say([&] {
    if (state_ == State::kAlone) {
      deliver_broken_link(peer, cause);
      return false;
    }
    std::string bytes = encode(BrokenLinkMessage{peer, cause.message(), cause.code()});
    keep({Clock::now(), bytes, peer, cause});
    return send(std::move(bytes));
  });
}

void ControlConnection::report_waiting(const WaitMessage& wait) {
  std::string bytes = encode_wait(MessageType::kWaiting, wait, world_.size);
  say([&] {
    std::erase_if(waits_, [&](const auto& known) { return known.first == wait.communicator; });
    keep_latest(std::pair(wait.communicator, bytes), kWaitsMax, &waits_);
    return send(std::move(bytes));
  });
}

void ControlConnection::say_shrink(const ShrinkMessage& message) {
  std::string bytes = encode_shrink(message, world_.size);
  say([&] {
    shrinks_.on_said(message);
    return send(std::move(bytes));
  });
}

void ControlConnection::leave() {
  // An arbiter that is ending hears no goodbye.
  catch_up();
  {
    std::unique_lock lock(mutex_);
    if (state_ == State::kLeft) return;
    sought_.wait_for(lock, kLeaveTime, [this] { return state_ != State::kSeeking; });
    static_cast<void>(send(encode(MessageType::kGoodbye)));
    change(State::kLeft);
  }
  // First, so that the thread never waits for a descriptor that means something else by now.
  remove_from_control_thread(this);
  dial_.reset();
  wait_for_hang_up();
  stream_.close();
  // Those that are on their way to this standby must not take it for dead.
  if (std::any_of(standby_.begin(), standby_.end(), is_called)) stand_by();
  standby_.clear();
  if (standby_loop_ != nullptr) end_standby(std::exchange(standby_loop_, nullptr), true);
}

// The arbiter closes the connection once it has told the others. Until then its death would make
// this rank one that has vanished.
void ControlConnection::wait_for_hang_up() {
  const TimePoint deadline = Clock::now() + kGoodbyeTime;
  while (stream_.fd() >= 0 && Clock::now() < deadline && stream_.flush().ok() &&
         stream_.receive()) {
    stream_.drop_input(stream_.input().size());
    if (!wait_ready(stream_.fd(), stream_.has_output(), deadline)) return;
  }
}

ArbiterNews ControlConnection::take_news() {
  const std::lock_guard lock(mutex_);
  has_news_.store(false, std::memory_order_relaxed);
  return std::exchange(news_, {});
}

// ---- What the arbiter says ----------------------------------------------------------------------

void ControlConnection::list_awaited(std::vector<pollfd>* awaited) {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kLeft) return;
  for (const Listener& listener : standby_) awaited->push_back({listener.fd.get(), POLLIN, 0});
  if (state_ == State::kOpen || suspects_) {
    const int events = stream_.has_output() ? POLLIN | POLLOUT : POLLIN;
    awaited->push_back({stream_.fd(), static_cast<short>(events), 0});
  }
  if (dial_) dial_->list_awaited(awaited);
}

TimePoint ControlConnection::next_due() {
  const std::lock_guard lock(mutex_);
  if (dial_) return std::min(dial_->next_due(), silence_.next_due());
  return state_ == State::kOpen ? silence_.next_due() : kNever;
}

void ControlConnection::serve(std::span<const pollfd>, TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (state_ == State::kLeft) return;
  if (std::any_of(standby_.begin(), standby_.end(), is_called)) stand_by();
  silence_.on_wake(now);
  // First: it may have an answer, by which this rank is awaited there.
  if (dial_) advance_dial(now);
  if (state_ == State::kOpen || suspects_) read(now);
  if (state_ == State::kOpen && !silence_.take_silent(now).empty()) suspect(now);
  if (dial_) advance_dial(now);
  if (silence_.take_beat(now)) static_cast<void>(send(encode(MessageType::kBeat)));
}

void ControlConnection::read(TimePoint now) {
  if (stream_.has_output()) static_cast<void>(stream_.flush());
  const std::size_t known = stream_.input().size();
  const bool open = stream_.receive();
  if (stream_.input().size() > known) {
    refusals_ = 0;
    acquit(now);
  }
  while (state_ == State::kOpen) {
    auto message = stream_.next();
    if (!message) return lose(ErrorCode::kProtocol, kNonsense, now);
    if (!*message) break;
    take(**message, now);
  }
  if (!open && (state_ == State::kOpen || suspects_)) {
    lose(ErrorCode::kRankFailed, "died: its control connection closed without goodbye", now);
  }
}

void ControlConnection::take(const Message& message, TimePoint now) {
  switch (message.type) {
    case MessageType::kBeat:
      return;
    case MessageType::kFarewell:
      record_.on_departed(holder_);
      return seek(now);
    case MessageType::kDeparted:
      if (const auto rank = decode_departed(message.body, world_.size)) {
        return record_.on_departed(*rank);
      }
      break;
    case MessageType::kAskCalls:
      if (const auto communicator = decode_question(message.body);
          communicator && news_.questions.size() < kQuestionsMax) {
        news_.questions.push_back(*communicator);
        return note_news();
      }
      break;
    case MessageType::kAskWaits:
      news_.asks_for_waits = true;
      return note_news();
    case MessageType::kShrink:
      if (auto word = decode_shrink(message.body, world_.size);
          word && news_.shrink_words.size() < kShrinkWordsMax) {
        shrinks_.on_word(*word);
        news_.shrink_words.push_back(std::move(*word));
        return note_news();
      }
      break;
    case MessageType::kDecision:
      if (auto decision = decode_decision(message.body, world_.size)) {
        return deliver(std::move(*decision));
      }
      break;
    default:
      break;
  }
  lose(ErrorCode::kProtocol, kNonsense, now);
}

void ControlConnection::deliver(FailureDecision decision) {
  if (!ledger_.admit(decision)) return;
  record_.on_decision(decision);
  news_.decisions.push_back(std::move(decision));
  note_news();
}

void ControlConnection::deliver_broken_link(Rank peer, const Status& cause) {
  const bool is_corrupted = cause.code() == ErrorCode::kCorrupted;
  deliver({is_corrupted ? cause.code() : ErrorCode::kRankFailed, peer, kEveryCommunicator, 0,
           member_text(world_.members[static_cast<std::size_t>(peer)]) +
               " is lost: " + cause.message()});
}

// ---- Where the arbiter is lost ------------------------------------------------------------------

void ControlConnection::lose(ErrorCode code, const std::string& how, TimePoint now) {
  suspects_ = false;
  record_.on_dead(holder_);
  deliver({code, holder_, kEveryCommunicator, 0,
           member_text(world_.members[static_cast<std::size_t>(holder_)]) +
               ", which holds the arbiter, " + how});
  seek(now);
}

void ControlConnection::suspect(TimePoint now) {
  suspects_ = true;
  record_.on_unreachable(holder_);
  seek(now);
}

void ControlConnection::acquit(TimePoint now) {
  silence_.on_heard(holder_, now);
  if (!suspects_) return;
  suspects_ = false;
  dial_.reset();
  record_.on_arbiter();
  change(State::kOpen);
}

void ControlConnection::depose(Rank successor) {
  if (!suspects_) return;
  const auto silence = silence_.limit();
  static_cast<void>(send(encode_deposed({successor, silence})));
  suspects_ = false;
  record_.on_dead(holder_);
  deliver({ErrorCode::kRankFailed, holder_, kEveryCommunicator, 0,
           fmt::format("{}, which held the arbiter, is silent: nothing was heard of it for {}; it "
                       "is stopped, or its host cannot be reached",
                       member_text(world_.members[static_cast<std::size_t>(holder_)]),
                       duration_text(silence))});
}

// A standby hears the arbiter, or has not found out yet that it is lost.
void ControlConnection::on_refused(TimePoint now) {
  record_.on_unreachable(dial_->standby());
  if (suspects_ && ++refusals_ < kRefusalsMax) {
    acquit(now);
    // Others may have heard the arbiter last a beat later, and lose it then.
    return silence_.on_heard(holder_, now - silence_.limit() * 5 / 6);
  }
  if (!suspects_ && now < seek_until_) return seek(now);
  suspects_ = false;
  deliver(
      {ErrorCode::kRankFailed, world_.rank, kEveryCommunicator, 0,
       fmt::format("{} is cut off: the link between it and rank {}, which holds the arbiter, "
                   "is broken, and others hear that one",
                   member_text(world_.members[static_cast<std::size_t>(world_.rank)]), holder_)});
  stream_.close();
  go_alone();
}

void ControlConnection::seek(TimePoint now) {
  if (!suspects_) {
    stream_.close();
    silence_.forget(holder_);
  }
  if (state_ != State::kSeeking) seek_until_ = now + kSeekTime;
  const bool self_last = silence_.was_stopped(now);
  Rank next = record_.next_standby(self_last);
  if (next < 0 && now < seek_until_ && record_.forgive()) {
    if (suspects_) record_.on_unreachable(holder_);
    next = record_.next_standby(self_last);
  }
  if (next < 0) {
    depose(-1);
    stream_.close();
    return go_alone();
  }
  RejoinMessage greeting = record_.rejoin_message();
  if (suspects_) greeting.dead.push_back(holder_);
  dial_.emplace(world_, next, greeting, now);
  if (state_ != State::kSeeking) change(State::kSeeking);
}

void ControlConnection::advance_dial(TimePoint now) {
  while (dial_) {
    switch (dial_->advance(now)) {
      case StandbyDial::Outcome::kPending:
        return;
      case StandbyDial::Outcome::kSeated:
        move_to(dial_->standby(), now);
        break;
      case StandbyDial::Outcome::kRefused:
        on_refused(now);
        break;
      case StandbyDial::Outcome::kFailed:
        record_.on_unreachable(dial_->standby());
        seek(now);
        break;
      case StandbyDial::Outcome::kAbsent:
        record_.on_absent(dial_->standby());
        seek(now);
        break;
      case StandbyDial::Outcome::kLeft:
        record_.on_departed(dial_->standby());
        seek(now);
    }
  }
}

void ControlConnection::move_to(Rank standby, TimePoint now) {
  depose(standby);
  stream_.close();
  stream_ = dial_->take_stream();
  dial_.reset();
  silence_.forget(holder_);
  holder_ = standby;
  silence_.on_heard(holder_, now);
  record_.on_arbiter();
  change(State::kOpen);
  drop_old_reports(now);
  for (const Report& report : reports_) static_cast<void>(send(report.bytes));
  for (const auto& [communicator, bytes] : waits_) static_cast<void>(send(bytes));
  for (const ShrinkMessage& message : shrinks_.to_repeat()) {
    static_cast<void>(send(encode_shrink(message, world_.size)));
  }
  // What came along with the answer makes no event of its own.
  read(now);
}

// Nobody is left to ask who is at the end of a broken link.
void ControlConnection::go_alone() {
  dial_.reset();
  is_last_.store(record_.is_last(), std::memory_order_relaxed);
  change(State::kAlone);
  drop_old_reports(Clock::now());
  for (const Report& report : std::exchange(reports_, {})) {
    if (report.peer >= 0) deliver_broken_link(report.peer, report.cause);
  }
}

void ControlConnection::stand_by() {
  ArbiterOptions options;
  options.size = world_.size;
  options.rendezvous = world_.job_id;
  options.job_id = options.handshake_job_id = world_.job_id;
  options.key = world_.key;
  options.listeners = std::exchange(standby_, {});
  options.self = world_.rank;
  options.members = world_.members;
  options.silence = silence_.limit();
  auto loop = start_standby(std::move(options));
  if (loop) {
    standby_loop_ = *loop;
  } else {
    log::warning(loop.error().message());
  }
}

}  // namespace unisono::rendezvous
