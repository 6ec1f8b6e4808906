// Memory that devices may read and write: registered once on every rail and kept until it is
// unmapped, freed or pushed out by the bound. Owned by VerbsTransport, used by its thread; the
// monitor's thread only marks what has gone. Memory of GPUs is registered by its dma-buf (GPUDirect
// RDMA) and known by its allocation, which is never the same again once it was freed.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/direct_memory.h"
#include "base/result.h"
#include "transports/verbs/memory_monitor.h"
#include "transports/verbs/rail.h"

namespace unisono::verbs {

using Rails = std::span<const std::unique_ptr<Rail>>;

/// One piece of memory on every rail. Move-only; deregisters.
class Registration {
 public:
  /// Registers on all rails, those lost for good excepted, or on none. `more_access`: what peers
  /// may do beside reading, IBV_ACCESS_REMOTE_WRITE. Without it, read-only memory (refused for
  /// local writes) is registered for remote reading alone. `device`: what the memory is part of,
  /// null for the host's; kUnsupported where the device or its driver cannot.
  static Result<std::unique_ptr<Registration>> make(Rails rails, const std::byte* begin,
                                                    std::size_t bytes, int more_access = 0,
                                                    DirectMemory* device = nullptr);
  ~Registration();
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  const std::byte* begin() const { return begin_; }
  std::size_t bytes() const { return bytes_; }
  bool covers(const std::byte* begin, std::size_t bytes) const {
    return is_within(memory(), begin, bytes);
  }
  /// 0 of a rail that was lost before.
  std::uint32_t lkey(std::size_t rail) const {
    return regions_[rail] == nullptr ? 0 : regions_[rail]->lkey;
  }
  std::uint32_t rkey(std::size_t rail) const {
    return regions_[rail] == nullptr ? 0 : regions_[rail]->rkey;
  }
  bool writable() const { return writable_; }

 private:
  friend class RegistrationCache;
  Registration(Rails rails, const std::byte* begin, std::size_t bytes);
  /// 0 or errno; `refused_by` is the rail in question. Some rails may be registered then.
  int register_all(int without_access, int more_access, std::size_t* refused_by);
  Status register_device(DirectMemory& device);
  bool outlives_its_use() const { return (watched_ || allocation_ != 0) && !stale_; }
  void deregister();
  std::span<const std::byte> memory() const { return {begin_, bytes_}; }

  Rails rails_;
  const std::byte* begin_;
  std::size_t bytes_;
  bool writable_ = true;
  std::uint64_t allocation_ = 0;  ///< of a device's memory; 0: the host's
  std::array<ibv_mr*, kRailsMax> regions_{};
  // The cache's own: users that hold it, its place in the order of use, whether it is watched and
  // so outlives its use, whether its memory changed.
  int holders_ = 0;
  std::uint64_t last_use_ = 0;
  bool watched_ = false;
  bool stale_ = false;
};

/// Each may cost the process two of its memory mappings, of which Linux allows 65530.
inline constexpr std::size_t kRegistrationsMax = 4096;

class RegistrationCache {
 public:
  /// `bytes_max`: of idle and held registrations together; held ones are never pushed out, so the
  /// sum may pass it while many are held. Likewise kRegistrationsMax. `monitor` may be null: then
  /// no registration outlives its use.
  RegistrationCache(Rails rails, std::size_t bytes_max, std::unique_ptr<MemoryMonitor> monitor);
  ~RegistrationCache();

  /// What covers `piece`, held by the caller until release(). Not found: `around` (the message that
  /// the piece belongs to; contains it) is registered if that succeeds, else the piece alone, both
  /// widened to whole pages of the host. Read-only memory is not writable() and does not outlive
  /// its use, since it may become writable unnoticed. A buffer of a device's
  /// (find_direct_memory) is registered whole where the bound allows, else the piece.
  /// kOutOfResources names the memlock limit; kInvalidArgument where the memory cannot be
  /// registered at all.
  Result<Registration*> acquire(std::span<const std::byte> piece,
                                std::span<const std::byte> around);
  void release(Registration* registration);

  /// Whether buffers of a device's are registered, `bytes` at once. An error says why not: what a
  /// device refused once is not tried again, and never at the expense of the host's.
  Status admits_device(std::size_t bytes) const;

  struct Counts {
    std::uint64_t made = 0;  ///< registrations, on all rails together counted once
    std::uint64_t found = 0;
    std::uint64_t invalidated = 0;  ///< the memory was unmapped, freed or moved
    std::uint64_t pushed_out = 0;   ///< by the bound
    std::size_t bytes = 0;          ///< registered now
  };
  const Counts& counts() const { return counts_; }

 private:
  using Pages = std::span<const std::byte>;
  using Entries = std::multimap<const std::byte*, std::unique_ptr<Registration>>;

  Registration* find(Pages piece, std::uint64_t allocation);
  Result<Registration*> add(Pages piece, Pages around);
  Result<Registration*> add_pages(Pages pages);
  Result<Registration*> add_device(Pages piece, DirectMemory& device);
  Registration* keep(std::unique_ptr<Registration> made);
  void drop_freed(const DirectMemory& device);
  bool is_worth_trying(Pages whole) const;
  void drop_changed();
  void mark_changed(Pages changed);
  Entries::iterator mark_stale(Entries::iterator entry);
  void make_room(std::size_t bytes);
  void warn_once(const Status& refusal);
  bool push_out_one();
  Entries::iterator erase(Entries::iterator entry);
  Entries::iterator first_that_may_reach(const std::byte* begin);

  Rails rails_;
  std::size_t bytes_max_;
  std::unique_ptr<MemoryMonitor> monitor_;
  std::uint64_t use_ = 0;
  bool warned_ = false;
  Status device_refusal_;
  Counts counts_;
  std::size_t held_bytes_ = 0;
  /// With so many bytes held, nothing more could be registered.
  std::size_t refused_bytes_ = SIZE_MAX;
  /// Of any registration so far: how far back one that covers something may begin.
  std::size_t longest_bytes_ = 0;
  Entries by_begin_;
};

}  // namespace unisono::verbs
