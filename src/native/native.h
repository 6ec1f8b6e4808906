// Native collectives: what ranks that share memory run instead of a plan. Small calls exchange one
// cell each; larger ones publish a descriptor in the cell and stream through shared windows, read
// each other's memory in place (unisono::allocate, threads of one process) or by single copy.
// Same preconditions, results, tests and failure behaviour as plans; reductions always follow the
// canonical tree.
//
// Thread rule: one thread at a time (the engine's).
#pragma once

#include <cstdint>
#include <memory>

#include "base/access_path.h"
#include "base/call_record.h"
#include "compute/compute.h"
#include "engine/operation.h"
#include "native/levels.h"
#include "transports/shm/shared_segment.h"
#include "unisono/call.h"
#include "unisono/traffic.h"

namespace unisono::native {

/// What start() reads of a checked call. What the call points to, and the reduction, outlive the
/// operation.
struct Arguments {
  const Call& call;
  const CallRecord& record;
  const compute::Reduction* reduction = nullptr;  ///< of reducing collectives
  /// How others may read this rank's large buffers; a path that a buffer cannot take falls back to
  /// the window.
  AccessPath access = AccessPath::kAutomatic;
};

/// A native call that runs.
class NativeCall : public Operation {
 public:
  /// Adds what `times` calls like this one, which is finished, moved between this rank and others.
  virtual void count(Collective collective, std::uint64_t times, TrafficReport* report) const = 0;
};

/// The native side of one communicator.
class Group {
 public:
  /// `levels`: how the members lie in the host, the same for all of them.
  explicit Group(std::unique_ptr<shm::SegmentGroup> group, Levels levels = {});
  ~Group();

  /// Starts a call. At most one runs at a time per group: the caller queues the rest and starts
  /// them in operation order. The operation belongs to the group and stays valid until the next
  /// start(). No allocation after the first calls of a shape, in which paths are tried.
  NativeCall& start(const Arguments& arguments);

  /// How often start() was called: while it stays the same, repeat() repeats the same call.
  std::uint64_t starts() const;
  /// Whether the last call was one that repeat() knows: a small one that succeeded.
  bool can_repeat() const;
  /// Starts the last call again on other buffers, without working its shape out anew. They are in
  /// place where the last one's were, and apart where those were apart. Otherwise as start().
  NativeCall& repeat(const void* input, void* output, const CallRecord& record);

  /// NativeCall::count() of the last call.
  void count_last(Collective collective, std::uint64_t times, TrafficReport* report) const;

  /// Members (communicator ranks) whose process said goodbye to this group.
  bool has_left(Rank member) const;
  /// Tells the members that this rank makes no further call. Idempotent.
  void leave();
  /// Ends every running and later wait of all members of the group. The first cause wins: true when
  /// it is this one. `failed_rank` is a communicator rank or -1. Any thread.
  bool raise(ErrorCode code, Rank failed_rank);
  /// After raise(): waits until no other thread of this process reads this rank's buffers, which
  /// are the caller's again then. That takes a step of a reader at most, never a call.
  void await_readers() const;
  /// The raised cause, if any (code kOk: none). A single load: any thread.
  ErrorCode raised(Rank* failed_rank) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace unisono::native
