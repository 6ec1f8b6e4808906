// What a rank has once, however many communicators it is in: its place in the job, the control
// connection, the engine, transports and shared memory. Made when the ranks meet; ends
// when the rank's last communicator is closed.
//
// Thread rule: as the engine's; members marked "any thread" are safe without its lock.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "algorithms/selection.h"
#include "base/per_process.h"
#include "comm/host_load.h"
#include "comm/job_news.h"
#include "comm/plain_memory.h"
#include "comm/registrations.h"
#include "comm/transport_set.h"
#include "comm/watched_job.h"
#include "config/config.h"
#include "cuda/device/rank_device.h"
#include "engine/engine.h"
#include "engine/scratch_pool.h"
#include "machine/identity.h"
#include "recorder/recorder.h"
#include "rendezvous/client/arbiter_client.h"
#include "rendezvous/messages/peer_information.h"
#include "transports/shm/shared_segment.h"
#include "unisono/helper_threads.h"
#include "unisono/options.h"

namespace unisono {

struct RuntimeOptions {
  Config config;
  RendezvousPoint rendezvous;
  Rank rank = 0;
  int size = 1;
  int local_size = 0;  ///< ranks of this host; 0: not known before the rendezvous
  TimePoint deadline = kNever;
  device::DeviceWish device;
};

/// What a forked child has of its parent's job stays as it is until the child ends: destroying it
/// would say goodbye in the parent's name, through the parent's memory, and wait for its threads.
void leave_to_parent(std::shared_ptr<void> inherited);

class Runtime final : public std::enable_shared_from_this<Runtime> {
 public:
  /// Meets. Errors as ArbiterClient::join and those of configuration.
  static Result<std::shared_ptr<Runtime>> create(RuntimeOptions options);
  ~Runtime();

  const World& world() const { return arbiter_->world(); }
  const Config& config() const { return config_; }
  Engine& engine() { return *engine_; }
  ScratchPool& scratch() { return scratch_; }
  /// Under the engine's lock.
  recorder::Recorder* recorder() { return recorder_.get(); }
  const algorithms::SelectionTable& selection() const { return selection_; }
  /// UNISONO_ALGORITHM's choices, by collective; empty: none.
  const algorithms::Hints& algorithm_hints() const { return algorithm_hints_; }
  /// Null where this rank can have no device memory.
  device::RankDevice* device() { return device_.get(); }
  /// The one that was asked for, or -1.
  int wished_device() const { return wished_device_; }
  /// Null when this host's ranks do not share memory.
  shm::SharedSegment* shared_segment() { return shared_segment_.get(); }
  /// The slowest link between these world ranks.
  algorithms::Link link_of(const std::vector<Rank>& members) const {
    return transports_.link_of(members);
  }

  /// Of the links between these world ranks, where each is on a host of its own and the links were
  /// measured; they may get known later. The reference lives as long as the runtime.
  const algorithms::LinkFacts& links_between(const std::vector<Rank>& members) const;
  void learn_links(const algorithms::LinkFacts& links) { links_ = links; }

  /// More ranks than processors on some host of these world ranks; all ranks agree.
  bool shares_cores(const std::vector<Rank>& members) const;
  /// Where these world ranks, all of this host, run.
  std::vector<Place> places(const std::vector<Rank>& members) const;

  /// 1, 2, ...: for a communicator that this rank names. Any thread.
  std::uint32_t take_communicator_number() { return next_number_.fetch_add(1); }

  ArbiterClient& arbiter() { return *arbiter_; }
  /// The communicators of this rank, and what they are told. Under the engine's lock.
  JobNews& news() { return *news_; }
  /// What watchdogs ask. Under the engine's lock.
  WatchedJob& watched() { return *watched_; }
  /// A communicator was closed, `sound` or after its failure. Under the engine's lock.
  void note_close(bool sound) {
    has_sound_close_ = sound || (has_sound_close_ && engine_->messenger().has_unsent());
  }
  /// Drains, says goodbye. Idempotent; under no lock.
  void shut_down();
  bool is_shut_down() const { return shut_down_.load(); }
  /// True in a forked child: all of this is still its parent's, memory, links and threads. It must
  /// be left as it is, and never be destroyed.
  bool is_forked_copy() const { return forks_so_far() != forks_before_; }

  /// Memory that local peers can read in place; plain memory where ranks do not share any. Any
  /// thread.
  Result<void*> allocate(std::size_t bytes, MemoryKind kind);
  Status release(void* pointer);
  /// What stands behind RegisteredMemory. No lock is held by the caller.
  Result<RegistrationFacts> register_memory(std::span<const std::byte> memory,
                                            const MemorySource& source);
  void unregister_memory(std::span<const std::byte> memory, const RegistrationFacts& facts);

  /// Runtimes alive in this process; any thread.
  static int alive();
  /// Those of them that are not shut down.
  static int open();

 private:
  explicit Runtime(RuntimeOptions& options);
  static void destroy(Runtime* runtime);
  Status get_ready(const RuntimeOptions& options, Member* self);
  Status connect(TimePoint deadline);
  Status hear_of_end(Duration patience);
  Status cause_of(const Status& seen);
  Status open_transports(const RuntimeOptions& options, Member* self);
  IdleChoice idle_choice() const;
  Status open_device(const device::DeviceWish& wish, Member* self);
  Status open_shared_segment(TimePoint deadline);
  void recall_trials(shm::LocalPeers* peers);
  void close_transports();
  void keep_trials();
  Status open_recorder();
  Status share(std::span<const std::byte> memory, const MemorySource& source,
               RegistrationFacts* facts);

  const int forks_before_ = forks_so_far();
  const std::shared_ptr<const HelperThreads> thread_;  // null where there is no peer to wait for
  Config config_;
  algorithms::SelectionTable selection_;
  algorithms::Hints algorithm_hints_;
  ScratchPool scratch_;
  std::unique_ptr<ArbiterClient> arbiter_;
  std::unique_ptr<JobNews> news_;
  std::unique_ptr<recorder::Recorder> recorder_;
  std::unique_ptr<shm::LocalListener> local_listener_;
  std::shared_ptr<shm::SharedSegment> shared_segment_;
  std::optional<machine::Identity> keeps_trials_of_;  // none: another rank does, or nobody
  std::unique_ptr<device::RankDevice> device_;
  int wished_device_ = -1;
  TransportSet transports_;
  Registrations registrations_;
  std::vector<HostLoad> host_loads_;  // by world rank
  std::vector<Place> places_;         // the same
  algorithms::LinkFacts links_;       // between hosts
  const algorithms::LinkFacts no_links_;
  std::unique_ptr<Engine> engine_;
  std::optional<WatchedJob> watched_;
  std::atomic<std::uint32_t> next_number_{1};
  std::atomic<bool> is_open_{true};  // counted in open()
  std::atomic<bool> shut_down_{false};
  bool has_sound_close_ = false;  // somebody may wait for what was sent
  PlainMemory plain_;             // where there is no segment
};

}  // namespace unisono
