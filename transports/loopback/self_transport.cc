#include "transports/loopback/self_transport.h"

#include <cstring>

namespace unisono {

PostResult SelfTransport::post_send(const FrameHeader& header, std::span<const std::byte> payload,
                                    std::uint64_t) {
  if (frames_.size() >= kFramesMax) return PostResult::kFull;
  frames_.push_back({header, {payload.begin(), payload.end()}});
  return PostResult::kDone;
}

bool SelfTransport::poll(FrameSink& sink) {
  // What the sink posts in answer waits for the next poll.
  const std::size_t count = frames_.size();
  for (std::size_t i = 0; i < count; ++i) {
    const Frame frame = std::move(frames_.front());
    frames_.pop_front();
    const Placement placement = sink.place(rank_, frame.header);
    if (placement.kind == Placement::Kind::kInto && !frame.payload.empty()) {
      std::memcpy(placement.target, frame.payload.data(), frame.payload.size());
    } else if (placement.kind == Placement::Kind::kDeliver) {
      sink.deliver(rank_, frame.header, 0, frame.payload);
    }
    sink.received(rank_, frame.header);
  }
  return count > 0;
}

}  // namespace unisono
