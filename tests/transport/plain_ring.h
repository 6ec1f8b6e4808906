// A ring in plain memory, for tests of its two ends.
#pragma once

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tests/transport/payload.h"
#include "tests/transport/recorder.h"
#include "transports/shm/message_ring.h"

namespace unisono::shm {

using test::Recorder;
using Pushed = RingSender::Pushed;
using Took = RingReceiver::Took;

/// Zero-filled memory on a line boundary.
class Memory {
 public:
  explicit Memory(std::size_t bytes)
      : bytes_(bytes), base_(static_cast<std::byte*>(std::aligned_alloc(kLineBytes, bytes))) {
    std::memset(base_.get(), 0, bytes);
  }
  RingMemory ring() const { return {base_.get(), bytes_}; }
  RingGeometry geometry() const { return *RingGeometry::of(ring()); }
  std::byte* line(std::size_t index) const {
    return base_.get() + kRingControlBytes + index * kLineBytes;
  }
  void write_word(std::byte* at, std::uint32_t word) const { std::memcpy(at, &word, sizeof word); }
  std::span<std::byte> bytes() const { return {base_.get(), bytes_}; }

 private:
  struct Free {
    void operator()(std::byte* at) const { std::free(at); }
  };
  std::size_t bytes_;
  std::unique_ptr<std::byte, Free> base_;
};

struct Frame {
  FrameHeader header;
  std::vector<std::byte> payload;
};

inline Frame make_frame(std::uint64_t sequence, std::size_t bytes) {
  Frame frame;
  frame.header.payload_bytes = static_cast<std::uint32_t>(bytes);
  frame.header.sequence = sequence;
  frame.header.total_bytes = bytes;
  frame.payload.resize(bytes);
  test::fill_payload(frame.payload, 0, sequence);
  return frame;
}

inline void take_all(RingReceiver& receiver, Recorder& recorder) {
  while (receiver.take(recorder) == Took::kRecord) {
  }
}

// Reads what is lent in place, after `meanwhile`.
class PlainLoans final : public Loans {
 public:
  PlainLoans() : Loans(0) {}
  MemoryHandle lend(Rank, const FrameHeader&, std::span<const std::byte>) const override {
    return {};
  }
  Status collect(Rank, const MemoryHandle& loan, std::span<std::byte> out) const override {
    std::memcpy(out.data(), reinterpret_cast<const void*>(loan.address), out.size());
    if (meanwhile) meanwhile();
    return failure;
  }
  std::function<void()> meanwhile;
  Status failure;
};

// A sender that lends, a receiver that reads in place, and who sees what arrives.
struct LendingRing {
  Memory memory{kRingBytesMin};
  RingSender sender{memory.geometry()};
  PlainLoans loans;
  RingReceiver receiver{memory.geometry(), 0, &loans};
  Recorder recorder;

  Pushed lend(const Frame& frame, MemoryPath path = MemoryPath::kHeap) {
    return sender.lend(
        frame.header, frame.payload,
        {path, frame.payload.size(), reinterpret_cast<std::uint64_t>(frame.payload.data())});
  }
  /// Both ends go on. Whether the frame has left the sender soon.
  bool run() {
    for (int turn = 0; turn < 1000; ++turn) {
      take_all(receiver, recorder);
      if (sender.writing() && sender.resume() == Pushed::kBroken) return false;
      if (sender.writing()) continue;
      take_all(receiver, recorder);
      return true;
    }
    return false;
  }
};

}  // namespace unisono::shm
