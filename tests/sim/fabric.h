// The network of a simulated job: frames that travel in virtual time, links that break, and the
// production contract of a transport (transports/transport.h) kept over them. What it does to
// frames, real transports do: a link has one or more streams, each in order; the streams behind the
// first carry pieces of large messages and overtake each other; payloads are lent, written and read
// in parts; posts are refused.
//
// Thread rule: one thread.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/sim/case.h"
#include "tests/sim/random.h"
#include "tests/sim/schedule.h"
#include "transports/transport.h"

namespace unisono::sim {

class SimulatedTransport;

class Fabric {
 public:
  /// `wake` is told of ranks that have something to poll for. All outlive the fabric.
  /// `passes_at`: when what one rank sends to another gets there at the earliest; kNever: not.
  Fabric(const Network& network, int ranks, std::uint64_t seed, Schedule& schedule,
         std::function<void(Rank)> wake, std::function<TimePoint(Rank, Rank)> passes_at);
  ~Fabric();

  SimulatedTransport& transport(Rank rank);
  /// The link breaks: what has not arrived is lost, and each end notices in its own time.
  void cut(Rank a, Rank b, Duration notice_min = {});
  /// So do all links between ranks that are `apart`, which notice it late.
  void part(const std::function<bool(Rank, Rank)>& apart);
  /// What is on its way and passes no more for a while comes behind that.
  void hold_up();
  /// All links of the rank break, those also that are made later. How many there were.
  int isolate(Rank rank);
  /// So do all links of `dead`, those also that others try to make later.
  void end_process(Rank dead);

 private:
  friend class SimulatedTransport;

  struct Frame {
    FrameHeader header;
    std::vector<std::byte> payload;
    TimePoint arrives;
    bool is_torn = false;  // the rest was lost with the link
  };
  struct Stream {
    std::deque<Frame> frames;
    std::size_t bytes = 0;
    TimePoint last_arrival{};
  };
  enum class End : std::uint8_t { kOpen, kGoodbye, kBroken };
  /// One way of a link.
  struct Way {
    std::vector<Stream> streams;
    End end = End::kOpen;
    TimePoint ends{};
    bool takes_nothing = false;  // cut, or its receiver has left
    bool is_awaited = false;     // its sender waits for room
  };

  Way& way(Rank from, Rank to);
  bool has_room(const Stream& stream, std::size_t bytes) const;
  void transmit(Rank from, Rank to, std::size_t stream, Frame frame);
  /// Nobody is there at `at`: the link breaks as soon as `from` can hear it.
  void refuse(Rank from, Rank at);
  /// While the network is down nobody hears that a link has broken.
  Duration heard_after(Rank from, Rank to);
  void break_way(Rank from, Rank to, Duration notice_min);
  void end_way(Rank from, Rank to, End end, TimePoint when);
  void announce(Rank at, Rank peer, TimePoint when);
  Duration delay();

  const Network& network_;
  const int ranks_;
  Random random_;
  Schedule& schedule_;
  std::function<void(Rank)> wake_;
  std::function<TimePoint(Rank, Rank)> passes_at_;
  std::unordered_map<std::uint64_t, Way> ways_;
  std::vector<std::unique_ptr<SimulatedTransport>> transports_;
  std::vector<bool> isolated_;
  std::vector<bool> gone_;  // processes that have ended, and ranks that have left
};

/// One rank's end.
class SimulatedTransport final : public Transport {
 public:
  SimulatedTransport(Fabric& fabric, Rank rank);
  ~SimulatedTransport() override;

  std::string_view name() const override { return "simulated"; }
  EndpointTraits traits() const override;
  std::string address() const override { return ""; }
  Status set_peers(std::vector<std::string>) override { return Status(); }
  Endpoint& endpoint(Rank peer) override;
  bool poll(FrameSink& sink) override;
  bool has_unsent() const override;
  void give_up(Rank peer, FrameSink& sink) override;
  void close(TimePoint deadline, FrameSink& sink) override;

  /// Something of `peer` is to be looked at in the next poll().
  void mark(Rank peer);
  std::size_t lent() const;

 private:
  class Link;

  Link& link(Rank peer);
  /// As mark(), and polls soon.
  void mark_and_wake(Link& link);

  Fabric& fabric_;
  const Rank rank_;
  std::unordered_map<Rank, std::unique_ptr<Link>> links_;
  std::vector<Link*> in_order_;  // of their making
  std::vector<Link*> marked_;
  bool left_ = false;
};

}  // namespace unisono::sim
