// What the device backend asks of its communicator, and the sub-communicators ("inside") whose
// calls make up a large call between hosts.
//
// Thread rule: the engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/host_backends.h"
#include "backend/members.h"
#include "backend/request_state.h"
#include "base/result.h"

namespace unisono {

struct World;

/// Members of a communicator as those inside of it have them, ascending. Every host has as many.
struct HostLayout {
  std::vector<Rank> local;   ///< of this rank's host
  std::vector<Rank> across;  ///< of this rank's place on every host
};

/// Numbers of the communicators inside, each chosen by its first rank. 0: that rank has chosen
/// none, or has none left.
struct HostGroupIds {
  std::uint32_t local = 0;
  std::uint32_t across = 0;
};

/// A call on a communicator inside. It runs by itself; whoever began it releases it.
class InnerCall {
 public:
  InnerCall() = default;
  explicit InnerCall(detail::RequestState& request) : request_(&request) {}
  /// True of an empty one, which has nothing to do.
  bool is_over() const {
    return request_ == nullptr || request_->done.load(std::memory_order_relaxed);
  }
  bool is_enqueued() const { return request_->enqueued.load(std::memory_order_relaxed); }
  /// Only once is_over().
  Status outcome() const { return request_ == nullptr ? Status() : request_->outcome; }
  /// Only before is_over(): adds ranks of the inner group.
  void waiting_for(std::vector<Rank>* ranks) const { request_->operation->waiting_for(ranks); }
  void release() const {
    if (request_ != nullptr) request_->held = false;
  }

 private:
  detail::RequestState* request_ = nullptr;
};

class InnerGroup {
 public:
  virtual ~InnerGroup() = default;
  virtual Rank rank() const = 0;
  /// A call on device memory, which begins at once and never holds its stream. Errors are told as
  /// outer_status() does.
  virtual Result<InnerCall> begin(const Call& call) = 0;
  /// A member's rank in the communicator around; -1 for -1.
  virtual Rank outer_rank(Rank rank) const = 0;
  /// A failure of this one with the ranks of the communicator around.
  virtual Status outer_status(const Status& failure) const = 0;
  /// Ends its calls, whose work in streams is over then, because the communicator around fails.
  /// Idempotent.
  virtual void fail(const Status& outer) = 0;
};

class BackendHost {
 public:
  virtual ~BackendHost() = default;
  virtual const Members& members() const = 0;
  virtual const World& world() const = 0;
  /// Ranks of the job that are in this process. Any thread.
  virtual int ranks_in_process() const = 0;
  /// True when the job has said that this world rank died or left.
  virtual bool is_gone(Rank world_rank) const = 0;
  /// The communicator around this one names the ranks.
  virtual bool is_inside() const = 0;
  /// What runs calls on host memory.
  virtual HostBackends& host() = 0;
  /// Whether the transport to this member takes messages to and from device buffers.
  virtual Status admits_direct(Rank member, std::size_t bytes) const = 0;
  /// Graphs of the caller's hold calls of this communicator from here on: their replays are
  /// nobody's request, so the peers are watched until it fails or is closed.
  virtual void watch_replays() = 0;

  /// Null before open_groups().
  virtual InnerGroup* local_group() = 0;
  virtual InnerGroup* across_group() = 0;
  /// The numbers that this rank has to name.
  virtual HostGroupIds offer_groups(const HostLayout& layout) = 0;
  virtual void open_groups(const HostLayout& layout, const HostGroupIds& ids) = 0;
};

}  // namespace unisono
