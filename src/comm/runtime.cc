// Rendezvous, and what is looked at once a millisecond while a rank waits.
#include "comm/runtime.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <sstream>
#include <system_error>
#include <thread>

#include "base/log.h"
#include "base/same_user.h"
#include "comm/communicator_state.h"
#include "comm/shared_settings.h"
#include "topology/host_identity.h"

namespace unisono {
namespace {

std::atomic<int> runtimes_alive{0};
std::atomic<int> runtimes_open{0};

constexpr std::size_t kDecisionsKept = 256, kQuestionsKept = 64;

// Of communicators that do not exist here most are closed ones: the latest `most` are kept.
template <typename T>
void remember(const T& what, std::size_t most, std::deque<T>* kept) {
  if (kept->size() == most) kept->pop_front();
  kept->push_back(what);
}

// What was remembered of this communicator, in order.
std::vector<FailureDecision> recall(std::uint32_t communicator, std::deque<FailureDecision>* kept) {
  const auto concerns = [&](const FailureDecision& each) {
    return each.communicator == communicator;
  };
  std::vector<FailureDecision> recalled;
  std::copy_if(kept->begin(), kept->end(), std::back_inserter(recalled), concerns);
  std::erase_if(*kept, concerns);
  return recalled;
}

// shut_down() polls transports whose operations are all over.
class DropSink final : public FrameSink {
  Placement place(Rank, const FrameHeader&) override { return {}; }
  void deliver(Rank, const FrameHeader&, std::size_t, std::span<const std::byte>) override {}
  void received(Rank, const FrameHeader&) override {}
  void sent(Rank, std::uint64_t) override {}
  void closed(Rank, const Status&) override {}
};

constexpr auto kDrainLimit = std::chrono::seconds(2);

}  // namespace

int Runtime::forks_so_far() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] {
    forks_.fetch_add(1, std::memory_order_relaxed);
    ProcessThreads::forget();
  });
  static_cast<void>(registered);
  return forks_.load(std::memory_order_relaxed);
}

int Runtime::alive() { return runtimes_alive.load(); }
int Runtime::open() { return runtimes_open.load(); }

Runtime::Runtime(RuntimeOptions& options)
    : forks_before_(forks_so_far()),
      thread_(options.size > 1 ? 1 : 0),
      config_(std::move(options.config)),
      scratch_(config_.scratch_bytes),
      transports_(config_, options.rank, options.size) {
  runtimes_alive.fetch_add(1);
  runtimes_open.fetch_add(1);
}

Runtime::~Runtime() {
  shut_down();
  engine_.reset();  // ends the progress thread before what it looks at
  for (void* pointer : plain_) std::free(pointer);
  runtimes_alive.fetch_sub(1);
}

// What a callback held may have been the last of it: its thread is the engine's own then, whose end
// another one has to wait for.
void Runtime::destroy(Runtime* runtime) {
  if (runtime->engine_ == nullptr || !runtime->engine_->is_progress_thread()) {
    delete runtime;
  } else {
    try {
      std::thread([runtime] { delete runtime; }).detach();
    } catch (const std::system_error& error) {
      log::warning(std::string("what a closed job has is not given back: no thread for it (") +
                   error.what() + ")");
    }
  }
}

Result<std::shared_ptr<Runtime>> Runtime::create(RuntimeOptions options) {
  std::shared_ptr<Runtime> runtime(new Runtime(options), &Runtime::destroy);
  UNISONO_ASSIGN(runtime->selection_, algorithms::SelectionTable::load(runtime->config_.tuning));
  UNISONO_TRY(runtime->parse_algorithm_hints());
  UNISONO_TRY(runtime->connect(options));
  return runtime;
}

// "all_reduce=ring,broadcast=binomial"
Status Runtime::parse_algorithm_hints() {
  std::istringstream entries(config_.algorithm);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const std::size_t equals = entry.find('=');
    Collective collective;
    if (equals == std::string::npos || !parse(entry.substr(0, equals), &collective)) {
      return Status(ErrorCode::kInvalidArgument,
                    "UNISONO_ALGORITHM: '" + entry + "' is not collective=algorithm");
    }
    const std::string name = entry.substr(equals + 1);
    if (name != "native" && algorithms::find(collective, name) == nullptr) {
      return Status(ErrorCode::kInvalidArgument, "UNISONO_ALGORITHM: unknown algorithm '" + name +
                                                     "' for " + std::string(name_of(collective)) +
                                                     "; known: native, " +
                                                     algorithms::names_of(collective));
    }
    algorithm_hints_[static_cast<std::size_t>(collective)] = name;
  }
  return Status();
}

Status Runtime::connect(const RuntimeOptions& options) {
  Member self;
  self.rank = options.rank;
  const topology::HostIdentity host = topology::read_host_identity();
  self.host = host.host;
  self.host_name = host.name;
  self.network_namespace = host.network_namespace;
  self.pid = getpid();
  self.uid = getuid();
  self.settings = shared_settings(config_, selection_);
  self.addresses = processor_lines();
  UNISONO_TRY(open_device(options.device, &self));
  UNISONO_TRY(open_transports(options, &self));
  UNISONO_ASSIGN(arbiter_,
                 ArbiterClient::join(options.rendezvous, options.size, self, options.deadline));
  host_loads_ = host_loads(world().members);
  engine_ = std::make_unique<Engine>(*this, options.size, config_.eager_bytes, idle_choice());
  peer_left_.assign(static_cast<std::size_t>(options.size), false);
  UNISONO_TRY(open_shared_segment(options.deadline));
  return transports_.connect(world(), shared_segment_, engine_->messenger());
}

IdleChoice Runtime::idle_choice() const {
  const HostLoad& load = host_loads_[static_cast<std::size_t>(world().rank)];
  return IdleChoice(config_.wait, {.ranks = load.ranks,
                                   .processes = load.processes,
                                   .here = load.ranks_of_process,
                                   .cores = load.cpus});
}

// Listens where peers may need it, before the job's table exists.
Status Runtime::open_transports(const RuntimeOptions& options, Member* self) {
  const std::string& kind = config_.transport;
  const bool trusts_users = kind == "auto" || kind == "shm" || kind == "unix";
  if (options.size > 1 && trusts_users && !options.rendezvous.within_process) {
    UNISONO_TRY(check_own_user());
  }
  if (options.size > 1 && (kind == "auto" || kind == "shm")) {
    Result<std::unique_ptr<shm::LocalListener>> listener = shm::LocalListener::open();
    if (listener) {
      local_listener_ = std::move(*listener);
      self->addresses += "shm " + local_listener_->address() + "\n";
    } else if (kind == "shm") {
      return listener.error();
    } else {
      log::warning("shared memory is not used: " + listener.error().message());
    }
  }
  UNISONO_TRY(transports_.open(options.local_size == options.size));
  self->addresses += transports_.addresses();
  return Status();
}

Status Runtime::open_device(const device::DeviceWish& wish, Member* self) {
  UNISONO_ASSIGN(device_, device::RankDevice::open(config_, wish));
  if (device_ != nullptr && !device_->published().empty()) {
    self->addresses += "cuda " + device_->published() + "\n";
  }
  return Status();
}

Status Runtime::open_shared_segment(TimePoint deadline) {
  if (local_listener_ == nullptr) return Status();
  const Member& self = world().members[static_cast<std::size_t>(world().rank)];
  shm::LocalPeers peers;
  peers.job_id = world().job_id;
  peers.single_copy = config_.access != AccessPath::kWindow;
  for (const Member& member : world().members) {
    const std::string address = find_address(member.addresses, "shm");
    if (!same_host(member, self) || address.empty()) continue;
    if (member.rank == self.rank) peers.self = static_cast<int>(peers.world_ranks.size());
    peers.world_ranks.push_back(member.rank);
    peers.pids.push_back(member.pid);
    peers.addresses.push_back(address);
  }
  peers.watch = [this, ranks = peers.world_ranks] { return find_lost(ranks); };
  Result<std::shared_ptr<shm::SharedSegment>> segment =
      shm::SharedSegment::open(*local_listener_, std::move(peers), deadline);
  local_listener_.reset();
  if (segment) {
    shared_segment_ = std::move(*segment);
    return Status();
  }
  if (config_.transport == "shm" || segment.error().code() == ErrorCode::kTimeout) {
    return segment.error();
  }
  log::warning("shared memory is not used: " + segment.error().message());
  return Status();
}

// What the job says of the first of these ranks that will never come; ok while all may.
Status Runtime::find_lost(const std::vector<Rank>& ranks) {
  handle_decisions();
  for (const FailureDecision& death : deaths_) {
    if (std::find(ranks.begin(), ranks.end(), death.failed_rank) == ranks.end()) continue;
    return Status(death.code, death.message, death.failed_rank);
  }
  for (const Rank rank : ranks) {
    if (!peer_left_[static_cast<std::size_t>(rank)]) continue;
    return Status(ErrorCode::kRankLeft, "rank " + std::to_string(rank) + " has left", rank);
  }
  return Status();
}

bool Runtime::is_gone(Rank rank) const {
  return peer_left_[static_cast<std::size_t>(rank)] ||
         std::any_of(deaths_.begin(), deaths_.end(),
                     [rank](const FailureDecision& death) { return death.failed_rank == rank; });
}

bool Runtime::shares_cores(const std::vector<Rank>& members) const {
  return std::any_of(members.begin(), members.end(), [&](Rank rank) {
    return host_loads_[static_cast<std::size_t>(rank)].shares_cores();
  });
}

void Runtime::add(detail::CommunicatorState& communicator) {
  communicators_.push_back(&communicator);
  for (const FailureDecision& death : deaths_) apply(death, communicator);
  // A member that was quicker may have left or failed the communicator before it was made here.
  for (const FailureDecision& decision : recall(communicator.members().id(), &unknown_decisions_)) {
    apply(decision, communicator);
  }
}

bool Runtime::remove(detail::CommunicatorState& communicator) {
  return std::erase(communicators_, &communicator) > 0 && communicators_.empty();
}

detail::CommunicatorState* Runtime::find(std::uint32_t id) const {
  for (auto* communicator : communicators_) {
    if (communicator->members().id() == id) return communicator;
  }
  return nullptr;
}

void Runtime::shut_down() {
  if (is_open_.exchange(false)) runtimes_open.fetch_sub(1);
  if (engine_ == nullptr || shut_down_.exchange(true)) return;
  const Engine::Lock lock(*engine_);
  DropSink sink;
  const TimePoint deadline = Clock::now() + kDrainLimit;
  for (int looks = 0; engine_->messenger().has_unsent() && Clock::now() < deadline; ++looks) {
    engine_->messenger().poll();
    if (looks > 100) usleep(100);
  }
  transports_.close(deadline, sink);
  arbiter_->leave();
}

void leave_to_parent(std::shared_ptr<void> inherited) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<void>>;
  const std::lock_guard guard(mutex);
  kept->push_back(std::move(inherited));
}

Result<void*> Runtime::allocate(std::size_t bytes, MemoryKind kind) {
  if (is_forked_copy()) {
    return Status(ErrorCode::kInvalidArgument, "a forked child has no part in its parent's job");
  }
  if (kind == MemoryKind::kCuda) {
    if (device_ != nullptr) return device_->allocate(bytes);
    return Status(ErrorCode::kUnsupported,
                  "there is no CUDA device for this rank; `unisono info` says why");
  }
  if (shared_segment_ != nullptr) return shared_segment_->allocate(bytes);
  void* pointer = std::aligned_alloc(64, (std::max<std::size_t>(bytes, 1) + 63) / 64 * 64);
  if (pointer == nullptr) {
    return Status(ErrorCode::kOutOfResources, "no memory for " + std::to_string(bytes) + " bytes");
  }
  const std::lock_guard guard(plain_mutex_);
  plain_.push_back(pointer);
  return pointer;
}

Status Runtime::release(void* pointer) {
  if (is_forked_copy()) return Status();
  if (device_ != nullptr && device_->is_device_memory(pointer)) return device_->release(pointer);
  if (shared_segment_ != nullptr) return shared_segment_->release(pointer);
  const std::lock_guard guard(plain_mutex_);
  if (std::erase(plain_, pointer) == 0) {
    return Status(ErrorCode::kInvalidArgument, "the pointer is not from unisono::allocate");
  }
  std::free(pointer);
  return Status();
}

void Runtime::mismatch(std::uint32_t communicator, Rank peer, const CallRecord& theirs,
                       const CallRecord& ours) {
  detail::CommunicatorState* found = find(communicator);
  if (found == nullptr) return;
  events_.push_back({communicator, ErrorCode::kMismatch, peer,
                     "rank " + std::to_string(found->members().find(world().rank)) + " called " +
                         describe(ours) + " while rank " +
                         std::to_string(found->members().find(peer)) + " called " +
                         describe(theirs)});
}

void Runtime::counts_differ(std::uint32_t communicator, Rank peer, std::string what) {
  detail::CommunicatorState* found = find(communicator);
  if (found == nullptr) return;
  events_.push_back({communicator, ErrorCode::kMismatch, peer,
                     "the counts of rank " + std::to_string(found->members().find(world().rank)) +
                         " and rank " + std::to_string(found->members().find(peer)) +
                         " differ: the latter " + what});
}

const CallRecord* Runtime::find_call(std::uint32_t communicator, std::uint64_t sequence) const {
  const detail::CommunicatorState* found = find(communicator);
  return found == nullptr ? nullptr : found->host().calls().find(sequence);
}

void Runtime::violation(std::uint32_t communicator, Rank peer, std::string what) {
  events_.push_back({communicator, ErrorCode::kProtocol, peer, std::move(what)});
}

void Runtime::link_closed(Rank peer, const Status& cause) {
  if (cause.ok()) {
    peer_left_[static_cast<std::size_t>(peer)] = true;
    return;
  }
  events_.push_back({kEveryCommunicator, ErrorCode::kRankFailed, peer, cause.message()});
}

void Runtime::left(std::uint32_t communicator, Rank peer) {
  events_.push_back({communicator, ErrorCode::kRankLeft, peer, ""});
}

void Runtime::stranger(std::uint32_t communicator, Rank peer) {
  log::warning("rank " + std::to_string(peer) + " has sent to rank " +
               std::to_string(world().rank) + " in communicator " + std::to_string(communicator) +
               ", of which it is no member; what it sends there is dropped");
}

void Runtime::probe(Rank peer, std::uint32_t communicator, std::uint64_t sequence,
                    const CallRecord& record) {
  engine_->messenger().probe(peer, communicator, sequence, record);
}

void Runtime::compare_call(std::uint32_t communicator, std::uint64_t sequence,
                           const CallRecord& record) {
  engine_->messenger().compare_call(communicator, sequence, record);
}

void Runtime::report_waiting(std::uint32_t communicator, std::uint64_t sequence,
                             const std::vector<Rank>& waiting_for) {
  arbiter_->report_waiting(communicator, sequence, waiting_for);
}

void Runtime::report_timeout(std::uint32_t communicator, std::uint64_t sequence,
                             const std::vector<Rank>& waiting_for,
                             const std::vector<Rank>& members) {
  arbiter_->report_timeout(communicator, sequence, waiting_for, members);
}

void Runtime::tend() {
  // The job's word first: what this rank finds out by itself may only follow from it.
  handle_decisions();
  handle_events();
  for (std::size_t i = 0; i < communicators_.size(); ++i) communicators_[i]->tend(peer_left_);
}

void Runtime::handle_events() {
  if (events_.empty()) return;
  std::vector<Event> events;
  events.swap(events_);
  for (const Event& event : events) {
    if (event.communicator == kEveryCommunicator) {
      // Whose fault it was is the arbiter's to say: the peer may be another failure's victim.
      arbiter_->report_broken_link(event.peer, event.message);
      continue;
    }
    if (detail::CommunicatorState* communicator = find(event.communicator)) {
      handle(event, *communicator);
    }
  }
}

void Runtime::handle(const Event& event, detail::CommunicatorState& communicator) {
  const Rank member = communicator.members().find(event.peer);
  if (event.code == ErrorCode::kRankLeft) {
    communicator.note_left(member);
    return;
  }
  if (event.code == ErrorCode::kMismatch) {
    return communicator.disagree(Status(event.code, event.message, member));
  }
  const std::string who =
      event.code == ErrorCode::kProtocol ? "rank " + std::to_string(member) + " " : "";
  communicator.fail(Status(event.code, who + event.message, member),
                    detail::CommunicatorState::Tell::kEveryone);
}

void Runtime::handle_decisions() {
  decisions_.clear();
  arbiter_->poll(&decisions_);
  for (const FailureDecision& decision : decisions_) {
    if (decision.code == ErrorCode::kRankLeft && decision.failed_rank >= 0 &&
        decision.communicator == kEveryCommunicator) {
      // No failure by itself: only calls that still need the rank fail, and they say which.
      peer_left_[static_cast<std::size_t>(decision.failed_rank)] = true;
      continue;
    }
    if (decision.communicator == kEveryCommunicator) {
      deaths_.push_back(decision);
    } else if (find(decision.communicator) == nullptr) {
      remember(decision, kDecisionsKept, &unknown_decisions_);
    }
    for (std::size_t i = 0; i < communicators_.size(); ++i) apply(decision, *communicators_[i]);
  }
  answer_questions();
}

// A communicator that others already disagree about may not have been made here yet.
void Runtime::answer_questions() {
  for (const std::uint32_t id : arbiter_->take_questions()) {
    remember(id, kQuestionsKept, &questions_);
  }
  std::erase_if(questions_, [this](std::uint32_t id) {
    const detail::CommunicatorState* const found = find(id);
    if (found != nullptr) arbiter_->answer_calls(id, found->own_calls());
    return found != nullptr;
  });
}

void Runtime::apply(const FailureDecision& decision, detail::CommunicatorState& communicator) {
  const Rank member = communicator.members().find(decision.failed_rank);
  const bool concerned = decision.communicator == kEveryCommunicator
                             ? member >= 0
                             : decision.communicator == communicator.members().id();
  if (concerned) {
    communicator.fail(Status(decision.code, decision.message, member),
                      detail::CommunicatorState::Tell::kNobody);
  }
}

}  // namespace unisono
