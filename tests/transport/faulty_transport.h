// A transport with faults by prescription: refusals in storms, frames that leave late, a peer that
// stalls, a connection that drops or breaks off in the middle of a frame. What the engine must
// survive is tried with it on any other transport. The same options and the same calls give the
// same faults.
//
// Thread rule: that of Transport.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transports/transport.h"

namespace unisono {

inline constexpr std::uint64_t kNoFault = ~std::uint64_t{0};

struct FaultOptions {
  std::uint64_t seed = 1;

  /// Of so many posts one, drawn by the seed, begins a storm: it and the next
  /// `full_storm_posts - 1` posts to that peer are answered kFull. 0: never.
  unsigned full_one_in = 0;
  unsigned full_storm_posts = 3;
  /// Each frame leaves so many polls after its post at the latest, drawn by the seed; frames of
  /// one peer keep their order.
  unsigned delay_polls_max = 0;
  /// Of so many posts one, drawn by the seed, is answered kPending. 0: never.
  unsigned pending_one_in = 0;

  /// The peer to which the faults below happen; -1: every peer.
  Rank peer = -1;
  /// From the k-th frame posted on (0 is the first), nothing leaves for `stall_polls` polls.
  std::uint64_t stall_at_frame = kNoFault;
  std::uint64_t stall_polls = 0;
  /// Instead of the k-th frame posted, the connection drops: closed(kRankFailed) here. The other
  /// side is not told.
  std::uint64_t drop_at_frame = kNoFault;
  /// Of the k-th frame that arrives half the payload is handed over, then closed(kRankFailed).
  std::uint64_t truncate_at_frame = kNoFault;
};

class FaultyTransport final : public Transport {
 public:
  FaultyTransport(std::unique_ptr<Transport> inner, FaultOptions options);
  ~FaultyTransport() override;

  std::string_view name() const override { return name_; }
  EndpointTraits traits() const override { return with_faults(inner_->traits()); }
  EndpointTraits traits_to(Rank peer) const override {
    return with_faults(inner_->traits_to(peer));
  }
  std::string address() const override { return inner_->address(); }
  Status set_peers(std::vector<std::string> addresses) override {
    return inner_->set_peers(std::move(addresses));
  }
  Endpoint& endpoint(Rank peer) override;
  bool poll(FrameSink& sink) override;
  bool has_unsent() const override { return inner_->has_unsent(); }
  void give_up(Rank peer, FrameSink& sink) override { inner_->give_up(peer, sink); }
  /// Delays and stalls end here: what is held back leaves first.
  void close(TimePoint deadline, FrameSink& sink) override;

 private:
  EndpointTraits with_faults(EndpointTraits traits) const;
  class Link;
  class FilteringSink;

  Link& link(Rank peer);
  bool is_target(Rank peer) const { return options_.peer == -1 || options_.peer == peer; }

  std::unique_ptr<Transport> inner_;
  FaultOptions options_;
  std::string name_;
  std::uint64_t polls_ = 0;
  bool hurrying_ = false;  // closing: nothing is held back any more
  bool left_ = false;      // closed
  std::map<Rank, std::unique_ptr<Link>> links_;
};

}  // namespace unisono
