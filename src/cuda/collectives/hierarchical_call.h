// A large all-reduce of ranks that have GPUs on several hosts, as many on each. In parts, and all
// of it in the caller's output:
//
//   reduce-scatter over the GPUs of the host -> all-reduce of this rank's slice with the ranks of
//   the same place on the other hosts -> all-gather over the GPUs of the host
//
// The steps are calls of the library's own on the communicators inside (HostGroups): the first and
// the last one fused, in the work stream behind the caller's, the middle one staged. So each rank
// sends its slice over the network and not the whole. A stream of the caller's waits at a gate, but
// for the first calls: while these connect the groups no call of the communicator has one.
//
// Thread rule: the engine's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "backend/backend_host.h"
#include "cuda/collectives/descriptor.h"
#include "cuda/collectives/device_call.h"
#include "engine/operation.h"

namespace unisono {

class HierarchicalCall {
 public:
  explicit HierarchicalCall(DeviceCall& call) : call_(call) {}

  /// Whether a call of Reach::kHosts is done so, unless a rank's buffers stand in the way; the same
  /// on all members.
  static bool takes(const Call& call);

  /// The numbers that the first members of the two groups have told, with no reason to stage the
  /// call. kProtocol with the rank that told none.
  static Status check_ids(const HostLayout& layout, const HostGroupIds& ids);

  /// What this rank will tell in the exchange of metadata. Errors: kOutOfResources.
  Status begin();
  /// As StagedCall::close_gate().
  Status close_gate();
  /// kFallback: after all members have told each other why.
  Result<StageState> advance();
  /// Lets the caller's stream go on, behind what the steps have in streams. The communicator fails,
  /// where steps have begun, and those inside with it.
  void fail(const Status& cause);
  /// Members that its steps wait for.
  void waiting_for(std::vector<Rank>* ranks) const;
  void end();

 private:
  static constexpr std::size_t kSliceBytes = std::size_t{4} << 20;  ///< of one rank in one part
  /// Below, a call is over sooner than its steps are arranged. Not measured on a GPU.
  static constexpr std::size_t kBytesMin = std::size_t{1} << 20;
  /// Parts whose slices are made before the first of them is gathered.
  static constexpr std::size_t kPartsAhead = 4;

  enum class State : std::uint8_t { kWaitingForTurn, kExchangingMetadata, kInParts, kOver };

  /// What a rank tells the others.
  struct Told {
    std::uint32_t fallback = 0;  ///< FallbackReason
    HostGroupIds ids;
  };
  /// One step of one part, on a communicator inside.
  struct Step {
    InnerGroup* group = nullptr;
    InnerCall call;  ///< empty: there is nothing to do
  };

  Result<device::FallbackReason> own_fallback() const;
  Status start_metadata_exchange();
  bool falls_back();
  Status start_parts();
  Status start_steps();
  Status start_scatter();
  Status start_exchange();
  Status start_gather();
  bool is_enqueued() const;
  void fail_steps(const Status& cause);
  static Status start(InnerGroup& group, const Call& call, std::deque<Step>* steps);
  static Result<bool> end_steps(std::deque<Step>* steps, std::size_t* ended);
  void choose_part(std::size_t part);
  std::size_t slice_elements() const;
  std::byte* own_slice() const;

  DeviceCall& call_;
  State state_ = State::kOver;
  bool connects_ = false;  // for it the driver registers pages, and may wait for all streams
  Told mine_;
  std::vector<Told> told_;
  InnerGroup* local_ = nullptr;
  InnerGroup* across_ = nullptr;
  CUstream stream_ = nullptr;  // the communicator's, for the steps of the device
  std::size_t count_ = 0;      // parts
  // Parts that have come so far, in order; each step of a part begins when the one before is over.
  std::size_t scatters_ = 0, scattered_ = 0, exchanges_ = 0, exchanged_ = 0, gathers_ = 0,
              gathered_ = 0;
  std::deque<Step> scattering_, exchanging_, gathering_;
  // Of the part that was chosen last.
  std::size_t first_ = 0;            // element
  std::vector<std::size_t> slices_;  // elements, by place on the host
  std::size_t own_first_ = 0;        // element of this rank's slice
};

}  // namespace unisono
