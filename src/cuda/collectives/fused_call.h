// A device call of ranks that share device memory: they exchange metadata on the host, so that all
// know whose buffers are where, and leave the rest to their streams.
//
//   threads                                     processes
//   1  all: exchange of metadata                1  all: exchange of metadata
//   2  the first rank of each device: a         2  all: the caller's stream tells those that launch
//      stream of the library's waits for all       that it is ready
//      ready events, then launches              3  the first rank of each device: its stream waits
//   3  all: exchange of the launches' events       until all are, launches, and tells all
//   4  all: the caller's stream waits for       4  all: the caller's stream waits for those that
//      those events                                launch
//
// Streams write into words of host memory which calls they are past: the host asks no driver.
//
// A captured call of processes puts steps 2 to 4 into the graph, and replays need no exchange.
//
// No kernel ever waits for another one. Where a rank's buffers cannot be reached, all ranks find
// that out in the exchange and stage the call (kFallback).
//
// Thread rule: the engine's lock.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "cuda/collectives/descriptor.h"
#include "cuda/collectives/descriptor_check.h"
#include "cuda/collectives/device_call.h"
#include "cuda/collectives/pieces.h"
#include "cuda/synchronisation/flag_page.h"
#include "cuda/synchronisation/team_events.h"
#include "engine/operation.h"

namespace unisono {

class FusedCall {
 public:
  explicit FusedCall(DeviceCall& call) : call_(call) {}

  /// What this rank will tell in the exchange of metadata.
  Status begin();
  /// Asks the driver only where something has come: what is waited for are words of memory.
  Result<StageState> advance();
  /// Its streams wait for nobody any more. The host's operation has ended.
  void fail();
  /// Members whose streams this rank's stream waits for.
  void waiting_for(std::vector<Rank>* ranks) const;
  /// An error that all ranks found alike, in the call and not in the communicator.
  bool refused() const { return refused_; }
  void end();

 private:
  enum class State : std::uint8_t {
    kWaitingForTurn,
    kExchangingMetadata,
    kInLine,
    kConnecting,
    kAgreeing,
    kInStreams,
    kOver
  };

  bool is_of_processes() const;
  bool may_wait_beside_others();
  void leave_waiting_streams();
  Status describe();
  Status start_metadata_exchange();
  Result<StageState> read_metadata();
  Status check_captures() const;
  Status refuse_capture(device::FallbackReason reason, Rank who) const;
  device::FallbackReason fallback(Rank* who) const;
  Status launch_for_threads();
  Status start_agreement();
  Status join_launches();
  Result<bool> connect();
  Result<bool> connect_flags();
  Status enqueue_for_processes(std::span<const device::RankPart> parts);
  Status enqueue_call(device::FlagPage& flags, std::span<const device::RankPart> parts);
  Status capture_call(const device::FlagPage& flags, std::span<const device::RankPart> parts);
  std::span<const device::PageTicket> offers(device::PageTicket device::Descriptor::*which);
  Result<bool> reach(const cuda::BufferTicket& ticket, Rank rank, std::size_t bytes,
                     std::byte** here);
  Result<bool> reach_parts(std::vector<device::RankPart>* parts);
  std::vector<cuda::DeviceWork> make_pieces(std::span<const device::RankPart> parts,
                                            const std::uint32_t* abort) const;
  Status launch(CUstream stream, std::span<const cuda::DeviceWork> pieces) const;
  void finish_in_stream();
  bool is_over() const;
  Status look_after_device();
  Result<StageState> await_decision(const Status& suspicion);
  device::ToldDescriptors told() const { return {received_, stride_}; }
  const device::Descriptor& part(Rank rank) const { return told().of(rank); }
  const device::DescriptorCounts& counts(Rank rank) const { return told().counts_of(rank); }

  DeviceCall& call_;
  State state_ = State::kOver;
  bool refused_ = false;
  bool is_among_waiting_streams_ = false;
  device::Descriptor mine_;
  device::DescriptorCounts my_counts_;
  bool has_counts_ = false;
  std::size_t stride_ = 0;  // bytes of a rank's descriptor in an exchange
  std::vector<std::byte> sent_, received_;
  std::vector<device::PageTicket> offers_;  // kept for the next look at whether all are connected
  // Of the launches of threads, by launcher, and of this rank's own.
  std::vector<device::TeamEvents::End> ends_;
  device::TeamEvents::End my_end_;
  std::uint32_t sequence_ = 0;  // of the flag page
  Status suspicion_;            // an error that a peer's death may explain
  TimePoint suspected_at_{};
  TimePoint next_look_{};  // at whether the device is well
};

}  // namespace unisono
