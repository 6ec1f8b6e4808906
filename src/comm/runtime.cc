// How a rank's runtime comes about and ends.
#include "comm/runtime.h"

#include <algorithm>
#include <mutex>
#include <new>
#include <numeric>
#include <set>
#include <system_error>
#include <thread>

#include "base/drain.h"
#include "base/grace_periods.h"
#include "base/insist.h"
#include "base/log.h"
#include "base/process_facts.h"
#include "base/same_user.h"
#include "base/signals_blocked.h"
#include "comm/shared_settings.h"
#include "topology/host_identity.h"

namespace unisono {
namespace {

struct Runtimes {
  std::atomic<int> alive{0}, open{0};
};
constinit PerProcess<Runtimes> runtimes;

struct LeftToParents {
  std::mutex mutex;
  std::vector<std::shared_ptr<void>> kept;
};
constinit PerProcess<LeftToParents> left_to_parents;

// shut_down() polls transports whose operations are all over.
class DropSink final : public FrameSink {
  Placement place(Rank, const FrameHeader&) override { return {}; }
  void deliver(Rank, const FrameHeader&, std::size_t, std::span<const std::byte>) override {}
  void received(Rank, const FrameHeader&) override {}
  void sent(Rank, std::uint64_t) override {}
  void closed(Rank, const Status&) override {}
};

// Most callbacks are about to return, and nothing of the job is left then where it has ended.
constexpr auto kCallbackEnds = std::chrono::milliseconds(20);

// A thread that makes several runtimes is taken to drive them, and counts once.
std::shared_ptr<const HelperThreads> count_this_thread() {
  struct Counted {
    std::weak_ptr<const HelperThreads> once;
    int forks = 0;  // what a forked child inherits is not counted there
  };
  thread_local Counted own;
  std::shared_ptr<const HelperThreads> counted = own.once.lock();
  if (counted == nullptr || own.forks != forks_so_far()) {
    counted = std::make_shared<const HelperThreads>(1);
    own = {counted, forks_so_far()};
  }
  return counted;
}

Member member_here(Rank rank) {
  const topology::HostIdentity host = topology::read_host_identity();
  Member member;
  member.rank = rank;
  member.host = host.host;
  member.host_name = host.name;
  member.network_namespace = host.network_namespace;
  member.pid = getpid();
  member.pid_namespace = pid_namespace();
  member.uid = getuid();
  member.addresses = processor_lines();
  return member;
}

}  // namespace

int Runtime::alive() { return runtimes.get().alive.load(); }
int Runtime::open() { return runtimes.get().open.load(); }

Runtime::Runtime(RuntimeOptions& options)
    : thread_(options.size > 1 ? count_this_thread() : nullptr),
      config_(std::move(options.config)),
      scratch_(config_.scratch_bytes),
      transports_(config_, options.rank, options.size) {
  runtimes.get().alive.fetch_add(1);
  runtimes.get().open.fetch_add(1);
}

Runtime::~Runtime() {
  shut_down();
  engine_.reset();  // ends the progress thread before what it looks at
  runtimes.get().alive.fetch_sub(1);
}

// The engine's own thread may be in a callback: that held the last of it, or it waits for what the
// thread holds that lets go of it here. Then another one has to wait for the end of the engine's.
void Runtime::destroy(Runtime* runtime) {
  if (runtime->engine_ == nullptr || runtime->engine_->can_be_ended(Clock::now() + kCallbackEnds)) {
    delete runtime;
  } else {
    try {
      const SignalsBlocked blocked;
      std::thread([runtime] { delete runtime; }).detach();
    } catch (const std::system_error& error) {
      log::warning(std::string("what a closed job has is not given back: no thread for it (") +
                   error.what() + ")");
    }
  }
}

Result<std::shared_ptr<Runtime>> Runtime::create(RuntimeOptions options) {
  std::shared_ptr<Runtime> runtime(new Runtime(options), &Runtime::destroy);
  Member self = member_here(options.rank);
  if (const Status ready = runtime->get_ready(options, &self); !ready) {
    ArbiterClient::decline(options.rendezvous, options.size, self, ready);
    return ready;
  }
  UNISONO_ASSIGN(runtime->arbiter_,
                 ArbiterClient::join(options.rendezvous, options.size, self, options.deadline));
  if (const Status connected = runtime->connect(options.deadline); !connected) {
    return runtime->cause_of(connected);
  }
  return runtime;
}

// All that this rank can do before it has met the others.
Status Runtime::get_ready(const RuntimeOptions& options, Member* self) {
  UNISONO_ASSIGN(selection_, algorithms::SelectionTable::load(config_.tuning));
  UNISONO_ASSIGN(algorithm_hints_, algorithms::parse_hints(config_.algorithm));
  self->settings = shared_settings(config_, selection_);
  self->is_newcomer = options.rendezvous.is_newcomer;
  UNISONO_TRY(open_device(options.device, self));
  return open_transports(options, self);
}

Status Runtime::connect(TimePoint deadline) {
  host_loads_ = host_loads(world().members);
  places_ = places_of(world().members);
  news_ = std::make_unique<JobNews>(*arbiter_, world().size);
  UNISONO_TRY(open_recorder());
  engine_ = std::make_unique<Engine>(*news_, world().size, config_.eager_bytes, idle_choice());
  watched_.emplace(engine_->messenger(), *arbiter_,
                   WatchedJob::Times{config_.timeout, config_.warn_after});
  UNISONO_TRY(open_shared_segment(deadline));
  return transports_.connect(world(), shared_segment_, engine_->messenger());
}

// The job's word on the end of another rank, which may come a moment after what it explains.
Status Runtime::hear_of_end(Duration patience) {
  std::vector<Rank> others(static_cast<std::size_t>(world().size));
  std::iota(others.begin(), others.end(), 0);
  std::erase(others, world().rank);
  const TimePoint until = Clock::now() + patience;
  for (;;) {
    news_->poll_arbiter();
    Status lost = news_->find_lost(others);
    if (!lost || Clock::now() >= until) return lost;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Why this rank cannot connect to the others: the end of another one, or its own failure, which it
// tells the job.
Status Runtime::cause_of(const Status& seen) {
  if (Status lost = hear_of_end(grace::kCause); !lost) return lost;
  // The first rank of a host knows for whom it has waited in vain; the others wait for it alone.
  const bool names_other = seen.code() == ErrorCode::kTimeout && seen.rank() > world().rank;
  arbiter_->report_failure({seen.code(), names_other ? seen.rank() : world().rank,
                            kEveryCommunicator, 0,
                            "rank " + std::to_string(world().rank) +
                                " cannot connect to the others: " + seen.message()});
  return seen;
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
  wished_device_ = wish.ordinal;
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
    peers.pids_hold.push_back(member.pid_namespace != 0 &&
                              member.pid_namespace == self.pid_namespace);
    peers.addresses.push_back(address);
  }
  recall_trials(&peers);
  peers.watch = [this, ranks = peers.world_ranks] {
    news_->poll_arbiter();
    return news_->find_lost(ranks);
  };
  Result<std::shared_ptr<shm::SharedSegment>> segment =
      shm::SharedSegment::open(*local_listener_, std::move(peers), deadline);
  local_listener_.reset();
  if (segment) {
    shared_segment_ = std::move(*segment);
    return Status();
  }
  const Status& why = segment.error();
  if (config_.transport == "shm" || why.code() == ErrorCode::kTimeout) return why;
  // Others may share memory all the same: who goes on without it would not reach them.
  const bool saw_end = why.code() == ErrorCode::kRankFailed;
  const Status lost = hear_of_end(saw_end ? grace::kCause : Duration());
  if (!lost && lost.code() != ErrorCode::kRankLeft) return lost;
  log::warning("shared memory is not used: " + why.message());
  return Status();
}

// Without memory for it nothing is recorded; directories that the user names have to be usable.
Status Runtime::open_recorder() {
  const Member& self = world().members[static_cast<std::size_t>(world().rank)];
  const recorder::RankIdentity identity{world().job_id, world().rank, world().size, self.host_name,
                                        topology::read_host_identity().boot};
  recorder::RecordPlace place{.setting = config_.recorder, .trace_folder = config_.trace};
  recorder::parse_announcement(config_.recorder_memory, &place.handed_fd, &place.inode);
  Result<std::unique_ptr<recorder::Recorder>> opened = recorder::Recorder::open(place, identity);
  const bool names_folder = !place.setting.folder.empty() || !place.trace_folder.empty();
  if (!opened && names_folder) return opened.error();
  if (!opened) {
    log::warning("operations are not recorded: " + opened.error().message());
    opened = recorder::Recorder::open({.setting = {.is_off = true}}, identity);
  }
  recorder_ = std::move(*opened);
  return Status();
}

const algorithms::LinkFacts& Runtime::links_between(const std::vector<Rank>& members) const {
  std::set<HostKey> hosts;
  const bool is_one_of_each = std::all_of(members.begin(), members.end(), [&](Rank rank) {
    return hosts.insert(host_key(world().members[static_cast<std::size_t>(rank)])).second;
  });
  return is_one_of_each ? links_ : no_links_;
}

bool Runtime::shares_cores(const std::vector<Rank>& members) const {
  return std::any_of(members.begin(), members.end(), [&](Rank rank) {
    return host_loads_[static_cast<std::size_t>(rank)].shares_cores();
  });
}

std::vector<Place> Runtime::places(const std::vector<Rank>& members) const {
  std::vector<Place> places;
  for (const Rank rank : members) places.push_back(places_[static_cast<std::size_t>(rank)]);
  return places;
}

void Runtime::shut_down() {
  if (is_open_.exchange(false)) runtimes.get().open.fetch_sub(1);
  if (engine_ == nullptr || shut_down_.exchange(true)) return;
  try {
    close_transports();
  } catch (const std::bad_alloc&) {
    // Peers miss what has not gone out, and nobody takes this rank for dead.
  }
  // Not under the lock, for they wait for others and for files. Without a goodbye the others would
  // take this rank for dead; where there is no memory for the rest it is not written.
  insist([this] { arbiter_->leave(); });
  insist([this] { keep_trials(); });
  const Engine::Lock lock(*engine_);
  insist([this] { recorder_->close(); });  // writes the trace, for which nobody is to wait
}

void Runtime::close_transports() {
  const Engine::Lock lock(*engine_);
  engine_->give_up_dead();
  DropSink sink;
  Drain drain(has_sound_close_, Clock::now());
  for (int looks = 0; engine_->messenger().has_unsent() && drain.goes_on(Clock::now()); ++looks) {
    engine_->messenger().poll();
    if (looks > 100) usleep(100);
  }
  transports_.close(drain.deadline(), sink);
}

void leave_to_parent(std::shared_ptr<void> inherited) {
  const bool is_kept = insist([&] {
    LeftToParents& all = left_to_parents.get();
    const std::lock_guard lock(all.mutex);
    all.kept.push_back(inherited);
  });
  if (is_kept) return;
  // Its end here would be the parent's: it never ends.
  alignas(std::shared_ptr<void>) std::byte nowhere[sizeof inherited];
  new (nowhere) std::shared_ptr<void>(std::move(inherited));
}

Result<void*> Runtime::allocate(std::size_t bytes, MemoryKind kind) {
  if (kind == MemoryKind::kCuda) {
    if (device_ != nullptr) return device_->allocate(bytes);
    return Status(ErrorCode::kUnsupported,
                  "there is no CUDA device for this rank; `unisono info` says why");
  }
  if (shared_segment_ != nullptr) return shared_segment_->allocate(bytes);
  return plain_.allocate(bytes);
}

Status Runtime::release(void* pointer) {
  if (is_forked_copy()) return Status();
  if (device_ != nullptr && device_->is_device_memory(pointer)) return device_->release(pointer);
  if (shared_segment_ != nullptr) return shared_segment_->release(pointer);
  return plain_.release(pointer);
}

}  // namespace unisono
