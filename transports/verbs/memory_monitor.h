// Tells when watched memory is unmapped, freed or moved, so that no registration outlives its
// pages. By userfaultfd's events: the kernel makes whoever unmaps wait until the event was taken,
// so after munmap() returned the change is always on record here. A monitor is used by one thread;
// all monitors of a process share one thread that takes events.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "transports/transport.h"

namespace unisono::verbs {

class MemoryMonitor {
 public:
  virtual ~MemoryMonitor() = default;
  /// Watches whole, present pages until they change or are forgotten, as often as it was asked. An
  /// error: this memory cannot be watched (a file's mapping, for example), so a registration of it
  /// must not outlive its use.
  virtual Status watch(std::span<const std::byte> pages) = 0;
  /// Ends one watch of exactly these pages. Other watches of some of them stay.
  virtual void forget(std::span<const std::byte> pages) = 0;
  /// One system call at most: false while nothing has happened since take_changed(), and no other
  /// thread is in the middle of unmapping.
  virtual bool has_changed() const = 0;
  /// Without a system call: false while nothing was noted since take_changed().
  virtual bool has_noted() const = 0;
  /// The ranges that were unmapped, dropped or moved since the last call, watched by this monitor
  /// or not; they are not watched any more, though forget() is still due. One that begins at null
  /// and spans SIZE_MAX bytes stands for all memory.
  virtual std::vector<std::span<const std::byte>> take_changed() = 0;
};

/// How userfaultfd is asked for events. Protecting writes (Linux 5.7, 5.19 for shared memory) never
/// causes a fault; kMissing, for older kernels, may.
enum class WatchMode { kBest, kMissing };

/// By userfaultfd; kUnsupported says what forbids it and how to allow it.
Result<std::unique_ptr<MemoryMonitor>> make_memory_monitor(WatchMode mode = WatchMode::kBest);

}  // namespace unisono::verbs
