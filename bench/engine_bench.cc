// What a step of a plan costs in the engine itself. `local_steps`: the executor alone, empty copies
// one after the other. `ring`: the ring all-reduce of small blocks, all ranks on this thread over a
// transport that only hands frames on: executor, matching, credit and both virtual calls, a send
// with its receive counted as two steps.
// Bar: 60 ns a step.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "compute/compute.h"
#include "engine/execution.h"
#include "engine/messenger.h"
#include "engine/scratch_pool.h"

namespace unisono {
namespace {

constexpr std::size_t kScratchBytes = std::size_t{64} << 20;

class NoEvents final : public MessengerEvents {
 public:
  void mismatch(std::uint32_t, Rank, const CallRecord&, const CallRecord&) override {
    std::abort();
  }
  void counts_differ(std::uint32_t, Rank, std::string) override { std::abort(); }
  void violation(std::uint32_t, Rank, std::string) override { std::abort(); }
  const CallRecord* find_call(std::uint32_t, std::uint64_t) const override { return nullptr; }
  void link_closed(Rank, const Status&) override { std::abort(); }
  void left(std::uint32_t, Rank) override { std::abort(); }
  void stranger(std::uint32_t, Rank) override { std::abort(); }
  void no_memory(std::uint32_t) override { std::abort(); }
};

/// Small frames from one rank to another, held in a ring of fixed places.
class HandOver {
 public:
  static constexpr std::size_t kPlaces = 16, kPayloadMax = 64;
  struct Frame {
    FrameHeader header;
    std::byte payload[kPayloadMax];
  };
  Frame* free_place() { return put_ - taken_ == kPlaces ? nullptr : &frames_[put_ % kPlaces]; }
  void put() { ++put_; }
  Frame* next() { return taken_ == put_ ? nullptr : &frames_[taken_ % kPlaces]; }
  void take() { ++taken_; }

 private:
  Frame frames_[kPlaces];
  std::size_t put_ = 0, taken_ = 0;
};

/// One rank's places to send to and to hear from, by peer.
class HandOverTransport final : public Transport {
 public:
  /// `channels`[from * ranks + to].
  HandOverTransport(std::vector<HandOver>& channels, Rank rank, int ranks) {
    for (Rank peer = 0; peer < ranks; ++peer) {
      const auto channel = [&](Rank from, Rank to) -> HandOver& {
        return channels[static_cast<std::size_t>(from * ranks + to)];
      };
      links_.emplace_back(channel(rank, peer), channel(peer, rank));
    }
  }
  std::string_view name() const override { return "hand over"; }
  EndpointTraits traits() const override { return {}; }
  std::string address() const override { return ""; }
  Status set_peers(std::vector<std::string>) override { return Status(); }
  Endpoint& endpoint(Rank peer) override {
    used_.push_back(peer);
    return links_[static_cast<std::size_t>(peer)];
  }
  bool has_unsent() const override { return false; }
  void close(TimePoint, FrameSink&) override {}

  bool poll(FrameSink& sink) override {
    bool moved = false;
    for (const Rank peer : used_) {
      moved = links_[static_cast<std::size_t>(peer)].poll(peer, sink) || moved;
    }
    return moved;
  }

 private:
  class Link final : public Endpoint {
   public:
    Link(HandOver& out, HandOver& in) : out_(out), in_(in) {}
    PostResult post_send(const FrameHeader& header, std::span<const std::byte> payload,
                         std::uint64_t) override {
      HandOver::Frame* frame = out_.free_place();
      if (frame == nullptr) return PostResult::kFull;
      frame->header = header;
      if (!payload.empty()) std::memcpy(frame->payload, payload.data(), payload.size());
      out_.put();
      return PostResult::kDone;
    }
    void cancel(std::uint64_t) override {}
    void abandon(const std::byte*, std::size_t) override {}

    bool poll(Rank peer, FrameSink& sink) {
      const HandOver::Frame* frame = in_.next();
      if (frame == nullptr) return false;
      const Placement placement = sink.place(peer, frame->header);
      const std::size_t bytes = frame->header.payload_bytes;
      if (placement.kind == Placement::Kind::kInto) {
        std::memcpy(placement.target, frame->payload, bytes);
      } else if (placement.kind == Placement::Kind::kDeliver) {
        sink.deliver(peer, frame->header, 0, {frame->payload, bytes});
      }
      const FrameHeader header = frame->header;
      in_.take();
      sink.received(peer, header);
      return true;
    }

   private:
    HandOver& out_;
    HandOver& in_;
  };

  std::vector<Link> links_;
  std::vector<Rank> used_;
};

const compute::Reduction& sum_of_floats() {
  static const Result<compute::Reduction> reduction =
      compute::Reduction::make(DataType::kFloat32, ops::sum, 1);
  return *reduction;
}

/// All ranks of one ring all-reduce, in turn on this thread.
class RingWorld {
 public:
  RingWorld(int ranks, std::size_t count) : channels_(static_cast<std::size_t>(ranks * ranks)) {
    members_.resize(static_cast<std::size_t>(ranks));
    std::iota(members_.begin(), members_.end(), 0);
    for (Rank rank = 0; rank < ranks; ++rank) add(rank, ranks, count);
  }

  std::size_t steps() const { return steps_; }

  void run(std::uint64_t sequence) {
    std::size_t running = seats_.size();
    for (Seat& seat : seats_) {
      const Status begun = seat.execution->begin({.plan = &seat.plan,
                                                  .input = seat.buffer.data(),
                                                  .output = seat.buffer.data(),
                                                  .reduction = &sum_of_floats(),
                                                  .sequence = sequence,
                                                  .world_ranks = &members_});
      if (!begun) std::abort();
      seat.done = false;
    }
    while (running > 0) {
      for (Seat& seat : seats_) {
        if (seat.done) continue;
        seat.messenger->poll();
        if (!seat.execution->advance()) continue;
        seat.done = true;
        --running;
      }
    }
    // The last credit frames.
    for (Seat& seat : seats_) seat.messenger->poll();
  }

 private:
  struct Seat {
    std::unique_ptr<HandOverTransport> transport;
    std::unique_ptr<Messenger> messenger;
    std::unique_ptr<Execution> execution;
    PreparedPlan plan;
    std::vector<float> buffer;
    bool done = false;
  };

  void add(Rank rank, int ranks, std::size_t count) {
    Seat& seat = seats_.emplace_back();
    seat.transport = std::make_unique<HandOverTransport>(channels_, rank, ranks);
    seat.messenger = std::make_unique<Messenger>(ranks, events_, 0);
    for (Rank peer = 0; peer < ranks; ++peer) {
      if (peer != rank) seat.messenger->set_route(peer, *seat.transport);
    }
    seat.messenger->open(0, members_);
    seat.execution = std::make_unique<Execution>(*seat.messenger, scratch_);
    seat.buffer.resize(count * static_cast<std::size_t>(ranks), 1.0f);
    const algorithms::Algorithm* ring = algorithms::find(Collective::kAllReduce, "ring");
    if (ring == nullptr) std::abort();
    const plan::Plan plan = ring->build(
        {.collective = Collective::kAllReduce, .ranks = ranks, .rank = rank, .in_place = true});
    const auto layout =
        plan::BufferLayout::contiguous(seat.buffer.size(), sizeof(float), plan.output_blocks, 1);
    steps_ += plan.steps.size();
    seat.plan = PreparedPlan::make(plan, layout, layout);
  }

  NoEvents events_;
  ScratchPool scratch_{kScratchBytes};
  std::vector<Rank> members_;
  std::vector<HandOver> channels_;
  std::deque<Seat> seats_;
  std::size_t steps_ = 0;
};

void report(benchmark::State& state, std::size_t steps) {
  state.counters["steps"] = static_cast<double>(steps);
  state.counters["per_step"] =
      benchmark::Counter(static_cast<double>(steps), benchmark::Counter::kIsIterationInvariantRate |
                                                         benchmark::Counter::kInvert);
}

void ring(benchmark::State& state) {
  RingWorld world(static_cast<int>(state.range(0)), 1);
  std::uint64_t sequence = 0;
  for (auto _ : state) world.run(sequence++);
  report(state, world.steps());
}
BENCHMARK(ring)->ArgName("ranks")->Arg(2)->Arg(4)->Arg(8);

void local_steps(benchmark::State& state) {
  const auto count = static_cast<std::uint32_t>(state.range(0));
  PreparedPlan plan;
  plan.steps.resize(count);
  for (std::uint32_t i = 0; i < count; ++i) {
    plan.dependency_counts.push_back(i == 0 ? 0 : 1);
    if (i + 1 == count) break;
    plan.steps[i].successor_first = i;
    plan.steps[i].successor_count = 1;
    plan.successors.push_back(i + 1);
  }
  plan.ready_first.push_back(0);
  NoEvents events;
  Messenger messenger(1, events, 0);
  ScratchPool scratch(kScratchBytes);
  Execution execution(messenger, scratch);
  const std::vector<Rank> members{0};
  for (auto _ : state) {
    if (!execution.begin({.plan = &plan, .world_ranks = &members}) || !execution.advance()) {
      std::abort();
    }
  }
  report(state, count);
}
BENCHMARK(local_steps)->ArgName("steps")->Arg(16)->Arg(256);

}  // namespace
}  // namespace unisono

BENCHMARK_MAIN();
