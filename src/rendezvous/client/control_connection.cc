#include "rendezvous/client/control_connection.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/suspended.h"
#include "rendezvous/sockets/run_or_end.h"

namespace unisono::rendezvous {
namespace {

// Reports beyond this, unread by a stuck arbiter, are dropped.
constexpr std::size_t kReportBytesMax = 1 << 20;
// For how long a rank that leaves, and looks for an arbiter, waits until one has heard it.
constexpr std::chrono::seconds kLeaveTime{2};

bool is_called(const Listener& listener) {
  return wait_ready(listener.fd.get(), false, TimePoint::min());
}

}  // namespace

ControlConnection::ControlConnection(ControlStream joined, const World& world, Doors doors,
                                     std::chrono::milliseconds silence)
    : world_(world),
      heard_at_(std::make_shared<std::atomic<TimePoint>>(Clock::now())),
      stream_(std::move(joined)),
      probe_port_(ProbePort::make(std::move(doors.probe), world, silence)),
      session_(world.members, world.rank, world.job_id, silence, *this, Clock::now()),
      standby_(std::move(doors.standby)) {
  // Others listened too, because they might have been chosen.
  if (!session_.is_standby()) standby_.clear();
}

ControlConnection::~ControlConnection() {
  remove_from_control_thread(this);
  if (standby_arbiter_ != 0) end_standby(standby_arbiter_, false);
}

Status ControlConnection::start() {
  {
    // What came along with the table of members makes no event of its own.
    const std::lock_guard lock(mutex_);
    read(Clock::now());
    publish();
  }
  return add_to_control_thread(this);
}

void ControlConnection::publish() {
  if (session_.has_news()) has_news_.store(true, std::memory_order_release);
  heard_at_->store(session_.arbiter_heard_at(), std::memory_order_relaxed);
  is_last_.store(session_.is_last(), std::memory_order_relaxed);
  is_lost_.store(session_.is_lost(), std::memory_order_release);
  published_.notify_all();
}

void ControlConnection::catch_up() {
  {
    const std::lock_guard lock(mutex_);
    const TimePoint now = Clock::now();
    run_or_end("control connection", [&] {  // as the control thread, which would read it
      session_.on_wake(now, time_suspended());
      if (session_.is_open()) read(now);
      publish();
    });
  }
  wake_control_thread();  // for what follows from that
}

void ControlConnection::send(std::string bytes) {
  if (!stream_.queue(std::move(bytes), kReportBytesMax)) {
    log::warning("the arbiter reads nothing; a report to it is dropped");
  }
  static_cast<void>(stream_.flush());
}

void ControlConnection::move() {
  stream_.close();
  stream_ = dial_->take_stream();
  dial_.reset();
}

// ---- What the rank says -------------------------------------------------------------------------

template <typename Saying>
void ControlConnection::say(Saying&& saying) {
  bool waits = false;
  {
    const std::lock_guard lock(mutex_);
    saying();
    publish();
    waits = session_.is_connected() && stream_.has_output();  // for room in the socket
  }
  if (waits) wake_control_thread();
}

void ControlConnection::report(std::string bytes) {
  say([&] { session_.report(std::move(bytes)); });
}

void ControlConnection::report_lasting(std::string bytes) {
  say([&] { session_.report_lasting(std::move(bytes), Clock::now()); });
}

void ControlConnection::report_broken_link(Rank peer, const Status& cause) {
  say([&] { session_.report_broken_link(peer, cause, Clock::now()); });
}

void ControlConnection::report_waiting(const WaitMessage& wait) {
  say([&] { session_.report_waiting(wait); });
}

void ControlConnection::report_timeout(const WaitMessage& wait) {
  say([&] { session_.report_timeout(wait, Clock::now()); });
}

void ControlConnection::withdraw_timeout(const WaitMessage& wait) {
  say([&] { session_.withdraw_timeout(wait); });
}

void ControlConnection::say_shrink(const ShrinkMessage& message) {
  say([&] { session_.say_shrink(message); });
}

ArbiterNews ControlConnection::take_news() {
  const std::lock_guard lock(mutex_);
  has_news_.store(false, std::memory_order_relaxed);
  return session_.take_news();
}

void ControlConnection::leave() {
  // An arbiter that is ending hears no goodbye.
  catch_up();
  {
    std::unique_lock lock(mutex_);
    if (session_.has_left()) return;
    session_.leave();
    publish();
    if (!await_departure(&lock) && !session_.is_with_own_arbiter()) tell_standbys(&lock);
    session_.end();
    publish();
  }
  // First, so that the thread never waits for a descriptor that means something else by now.
  remove_from_control_thread(this);
  dial_.reset();
  probe_port_.reset();
  stream_.close();
  // Those that are on their way to this standby must not take it for dead.
  if (std::any_of(standby_.begin(), standby_.end(), is_called)) stand_by();
  standby_.clear();
  if (standby_arbiter_ != 0) end_standby(std::exchange(standby_arbiter_, 0), true);
}

// Until the arbiter has heard the goodbye: its death would make this rank one that has vanished.
bool ControlConnection::await_departure(std::unique_lock<std::mutex>* lock) {
  const auto has_heard = [this] { return session_.has_left(); };
  // Ranks that come to this standby, because they miss the arbiter, are to hear soon that it
  // leaves.
  if (standby_arbiter_ != 0 && !session_.is_seeking()) return true;
  const auto settled = [&] { return has_heard() || session_.is_seeking(); };
  if (published_.wait_for(*lock, kGoodbyeTime, settled) && !has_heard()) {
    published_.wait_for(*lock, kLeaveTime, has_heard);
  }
  return has_heard();
}

void ControlConnection::tell_standbys(std::unique_lock<std::mutex>* lock) {
  session_.say_goodbye_to_standbys(Clock::now());
  lock->unlock();
  wake_control_thread();  // for the dial
  lock->lock();
  published_.wait_for(*lock, kGoodbyeTime, [this] { return session_.has_left(); });
}

// ---- What the control thread does ---------------------------------------------------------------

void ControlConnection::list_awaited(std::vector<pollfd>* awaited) {
  const std::lock_guard lock(mutex_);
  if (session_.has_left()) return;
  for (const Listener& listener : standby_) awaited->push_back({listener.fd.get(), POLLIN, 0});
  if (session_.is_connected()) {
    const int events = stream_.has_output() ? POLLIN | POLLOUT : POLLIN;
    awaited->push_back({stream_.fd(), static_cast<short>(events), 0});
  }
  if (dial_) dial_->list_awaited(awaited);
  if (probe_port_) awaited->push_back({probe_port_->fd(), POLLIN, 0});
}

TimePoint ControlConnection::next_due() {
  const std::lock_guard lock(mutex_);
  if (session_.has_left()) return kNever;
  const TimePoint due = probe_port_ ? probe_port_->next_due() : kNever;
  if (dial_) return std::min({due, dial_->next_due(), session_.next_due()});
  return session_.is_open() ? std::min(due, session_.next_due()) : due;
}

void ControlConnection::serve(std::span<const pollfd> happened, TimePoint now) {
  const std::lock_guard lock(mutex_);
  if (session_.has_left()) return;
  if (std::any_of(standby_.begin(), standby_.end(), is_called)) stand_by();
  session_.on_wake(now, time_suspended());
  // First: it may have an answer, by which this rank is awaited there.
  advance_dial(now);
  if (session_.is_connected()) read(now);
  serve_probes(happened, now);
  session_.look_for_silence(now);
  advance_dial(now);
  session_.beat(now);
  publish();
}

void ControlConnection::read(TimePoint now) {
  if (stream_.has_output()) static_cast<void>(stream_.flush());
  const std::size_t known = stream_.input().size();
  const bool open = stream_.receive();
  if (stream_.input().size() > known) session_.on_heard(now);
  while (session_.is_open()) {
    auto message = stream_.next();
    if (!message) return session_.on_nonsense(now);
    if (!*message) break;
    session_.on_message(**message, now);
  }
  if (!open && session_.is_connected()) session_.on_closed(now, stream_.has_ended());
}

void ControlConnection::advance_dial(TimePoint now) {
  while (dial_) {
    const DialOutcome outcome = dial_->advance(now);
    if (outcome == DialOutcome::kPending) return;
    session_.on_dialled(outcome, now);
    // What came along with the answer makes no event of its own.
    if (outcome == DialOutcome::kSeated) read(now);
  }
}

// After what the arbiter has said, which may ask for one.
void ControlConnection::serve_probes(std::span<const pollfd> happened, TimePoint now) {
  if (!probe_port_) return;
  const bool has_come = std::any_of(happened.begin(), happened.end(), [this](const pollfd& each) {
    return each.fd == probe_port_->fd() && each.revents != 0;
  });
  if (!has_come && now < probe_port_->next_due()) return;
  for (const Prober::Outcome& outcome : probe_port_->serve(now)) {
    session_.on_probed(outcome.rank, outcome.is_reached);
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
  options.silence = session_.silence();
  options.heard_at = heard_at_;
  const auto started = start_standby(std::move(options));
  if (started) {
    standby_arbiter_ = *started;
  } else {
    log::warning(started.error().message());
  }
}

}  // namespace unisono::rendezvous
