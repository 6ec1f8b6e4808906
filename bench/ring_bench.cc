// What a frame costs over the rings of one host: the ring alone on one core, a poll of idle rings,
// and one way of a ping-pong between two processes through Transport, virtual calls included.
#include <benchmark/benchmark.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "transports/shm/message_ring.h"
#include "transports/shm/shm_transport.h"

namespace unisono {
namespace {

constexpr std::size_t kRingBytes = 512 * 1024;

/// Zero-filled memory that a forked child shares.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t bytes) : bytes_(bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED) std::abort();
    base_ = static_cast<std::byte*>(at);
  }
  ~SharedMemory() { munmap(base_, bytes_); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  std::byte* base() const { return base_; }

 private:
  std::byte* base_;
  std::size_t bytes_;
};

/// Takes payloads into one buffer, or looks at them where they lie, and counts bytes.
class CountingSink final : public FrameSink {
 public:
  explicit CountingSink(bool deliver) : deliver_(deliver), buffer_(kFramePayloadMax) {}
  Placement place(Rank, const FrameHeader&) override {
    if (deliver_) return {Placement::Kind::kDeliver, nullptr};
    return {Placement::Kind::kInto, buffer_.data()};
  }
  void deliver(Rank, const FrameHeader&, std::size_t offset,
               std::span<const std::byte> piece) override {
    std::memcpy(buffer_.data() + offset, piece.data(), piece.size());
  }
  void received(Rank, const FrameHeader&) override { ++frames; }
  void sent(Rank, std::uint64_t) override { ++returned; }
  void closed(Rank, const Status&) override { closed_seen = true; }

  std::uint64_t frames = 0;
  std::uint64_t returned = 0;
  bool closed_seen = false;

 private:
  bool deliver_;
  std::vector<std::byte> buffer_;
};

/// Polls; after many polls for nothing the core is offered to the peer, who may need it.
class PatientPoller {
 public:
  PatientPoller(Transport& transport, FrameSink& sink) : transport_(transport), sink_(sink) {}
  void poll() {
    if (transport_.poll(sink_)) {
      idle_ = 0;
    } else if (++idle_ == 2000) {
      idle_ = 0;
      sched_yield();
    }
  }

 private:
  Transport& transport_;
  FrameSink& sink_;
  int idle_ = 0;
};

std::unique_ptr<Transport> make_rank(Rank self, int size, std::byte* base) {
  std::vector<Rank> peers;
  for (Rank peer = 0; peer < size; ++peer) {
    if (peer != self) peers.push_back(peer);
  }
  auto open = [base, size](Rank from, Rank to) -> Result<shm::RingMemory> {
    return shm::RingMemory{base + (static_cast<std::size_t>(from) * size + to) * kRingBytes,
                           kRingBytes};
  };
  auto made = shm::ShmTransport::make(self, std::move(peers), open);
  if (!made) std::abort();
  return std::move(*made);
}

FrameHeader header_for(std::size_t bytes) {
  FrameHeader header;
  header.payload_bytes = static_cast<std::uint32_t>(bytes);
  header.total_bytes = bytes;
  return header;
}

/// Posts one frame and waits until `goal` frames have come back.
void exchange(Transport& transport, Endpoint& endpoint, CountingSink& sink,
              const FrameHeader& header, std::span<const std::byte> payload, std::uint64_t goal) {
  PatientPoller poller(transport, sink);
  PostResult posted;
  const std::uint64_t returned = sink.returned;
  while ((posted = endpoint.post_send(header, payload, 1)) == PostResult::kFull) {
    poller.poll();
  }
  while (sink.frames < goal || (posted == PostResult::kPending && sink.returned == returned)) {
    poller.poll();
  }
}

[[noreturn]] void echo_until_closed(std::byte* base, std::size_t bytes, bool deliver) {
  const std::unique_ptr<Transport> transport = make_rank(1, 2, base);
  Endpoint& endpoint = transport->endpoint(0);
  CountingSink sink(deliver);
  const std::vector<std::byte> payload(bytes);
  PatientPoller poller(*transport, sink);
  std::uint64_t answered = 0;
  while (!sink.closed_seen) {
    poller.poll();
    while (answered < sink.frames && !sink.closed_seen) {
      if (endpoint.post_send(header_for(bytes), payload, 1) != PostResult::kFull) ++answered;
      transport->poll(sink);
    }
  }
  _exit(0);
}

void ping_pong(benchmark::State& state, bool deliver) {
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const SharedMemory memory(4 * kRingBytes);
  const pid_t child = fork();
  if (child == 0) echo_until_closed(memory.base(), bytes, deliver);
  {
    const std::unique_ptr<Transport> transport = make_rank(0, 2, memory.base());
    Endpoint& endpoint = transport->endpoint(1);
    CountingSink sink(deliver);
    const std::vector<std::byte> payload(bytes);
    std::uint64_t rounds = 0;
    for (auto _ : state) {
      exchange(*transport, endpoint, sink, header_for(bytes), payload, ++rounds);
    }
    transport->close(Clock::now() + std::chrono::seconds(1), sink);
    state.counters["one_way"] =
        benchmark::Counter(2.0 * static_cast<double>(rounds),
                           benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  }
  waitpid(child, nullptr, 0);
}

void ping_pong_into(benchmark::State& state) { ping_pong(state, false); }
void ping_pong_deliver(benchmark::State& state) { ping_pong(state, true); }
BENCHMARK(ping_pong_into)
    ->Arg(4)
    ->Arg(64)
    ->Arg(1024)
    ->Arg(4096)
    ->Arg(16384)
    ->Arg(65536)
    ->Arg(262144)
    ->UseRealTime();
BENCHMARK(ping_pong_deliver)->Arg(4)->Arg(4096)->Arg(262144)->UseRealTime();

/// One thread does both ends: the instructions, without the way between two cores.
void ring_push_and_take(benchmark::State& state) {
  const SharedMemory memory(kRingBytes);
  const auto geometry = shm::RingGeometry::of({memory.base(), kRingBytes});
  shm::RingSender sender(*geometry);
  shm::RingReceiver receiver(*geometry, 0);
  CountingSink sink(false);
  const auto bytes = static_cast<std::size_t>(state.range(0));
  const std::vector<std::byte> payload(bytes);
  for (auto _ : state) {
    sender.push(header_for(bytes), payload);
    while (receiver.take(sink) == shm::RingReceiver::Took::kRecord) {
    }
  }
  state.SetBytesProcessed(state.iterations() * static_cast<std::int64_t>(bytes));
}
BENCHMARK(ring_push_and_take)->Arg(4)->Arg(64)->Arg(4096)->Arg(65536);

/// The rings of rank 0 alone, as many as there are peers each way.
class RingsOfRankZero {
 public:
  explicit RingsOfRankZero(int size) : size_(size), memory_(2 * kRingBytes * size) {
    std::vector<Rank> peers;
    for (Rank peer = 1; peer < size; ++peer) peers.push_back(peer);
    const auto open = [this](Rank from, Rank to) -> Result<shm::RingMemory> {
      return shm::RingMemory{ring(from, to), kRingBytes};
    };
    auto made = shm::ShmTransport::make(0, std::move(peers), open);
    if (!made) std::abort();
    transport_ = std::move(*made);
    for (Rank peer = 1; peer < size; ++peer) transport_->endpoint(peer);
  }
  Transport& transport() const { return *transport_; }
  std::byte* ring(Rank from, Rank to) const {
    return memory_.base() + kRingBytes * (from == 0 ? to : size_ + from);
  }

 private:
  int size_;
  SharedMemory memory_;
  std::unique_ptr<Transport> transport_;
};

void poll_idle_rings(benchmark::State& state) {
  const int size = static_cast<int>(state.range(0));
  const RingsOfRankZero rings(size);
  CountingSink sink(false);
  for (auto _ : state) benchmark::DoNotOptimize(rings.transport().poll(sink));
  state.counters["rings"] = size - 1;
}
BENCHMARK(poll_idle_rings)->Arg(2)->Arg(8)->Arg(16)->Arg(64)->Arg(192);

/// A frame of one peer that sends all the time is taken while all others are silent.
void take_among_idle_rings(benchmark::State& state) {
  const int size = static_cast<int>(state.range(0));
  const RingsOfRankZero rings(size);
  const Rank busy = std::min(size / 2 + 1, size - 1);
  const auto geometry = shm::RingGeometry::of({rings.ring(busy, 0), kRingBytes});
  shm::RingSender sender(*geometry);
  CountingSink sink(false);
  const std::vector<std::byte> payload(4);
  for (auto _ : state) {
    sender.push(header_for(4), payload);
    for (const std::uint64_t before = sink.frames; sink.frames == before;) {
      rings.transport().poll(sink);
    }
  }
  state.counters["rings"] = size - 1;
}
BENCHMARK(take_among_idle_rings)->Arg(2)->Arg(16)->Arg(64)->Arg(192);

}  // namespace
}  // namespace unisono

BENCHMARK_MAIN();
