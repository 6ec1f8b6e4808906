// Bytes of one stream in, headers checked, payloads placed where the engine wants them. No sockets:
// the owner receives into areas() and reports how much arrived. Nothing from the wire is trusted.
// Owned by a Stream; calls FrameSink from received() only.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/result.h"
#include "transports/tcp/frame_sums.h"
#include "transports/transport.h"

namespace unisono::tcp {

class FrameReader {
 public:
  /// Streams behind the first one carry pieces of granted messages, and where these end.
  enum class Carries : std::uint8_t { kEverything, kDataOnly };
  /// `has_sums`: every frame has checksums, which are compared.
  explicit FrameReader(Rank peer, Carries carries = Carries::kEverything, bool has_sums = false);

  /// Where the next bytes of the stream belong: first the rest of a payload that goes straight to
  /// its target, if there is one, then staging. Returns entries used, 1 or 2.
  int areas(std::array<iovec, 2>* out);
  /// `bytes` were written to the areas, in their order. kProtocol for what no peer may send,
  /// kCorrupted for what is not as it was sent.
  Status received(std::size_t bytes, FrameSink& sink);
  /// The same for bytes that lie elsewhere: what came in one piece with the handshake.
  Status take(std::span<const std::byte> bytes, FrameSink& sink);

  /// What arrives for [begin, begin + bytes) is discarded from now on.
  void abandon(const std::byte* begin, std::size_t bytes);

  /// The peer said that nothing follows on this stream.
  bool ended() const { return ended_; }
  /// After ended(): on how many streams it says so.
  std::uint32_t ended_streams() const { return ended_streams_; }
  /// Payload of the kData frames that have begun so far.
  std::uint64_t data_bytes() const { return data_bytes_; }
  /// Between two frames: the stream may end here without having cut one.
  bool between_frames() const { return !in_payload_ && begin_ == end_; }

 private:
  // Holds one whole frame of the largest size; pieces handed to deliver() start at multiples of
  // kAlignment in it, so that elements in them are aligned.
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kStagingBytes = sizeof(FrameHead) + kFramePayloadMax;
  // Received at once where a header is expected: small frames come whole, of a large one not so
  // much that copying it out of staging costs more than a call.
  static constexpr std::size_t kSmallBytes = 16 * 1024 + sizeof(FrameHead);
  // Asked for behind a payload of known length: the next header, or a few small frames.
  static constexpr std::size_t kBehindPayload = 512;

  struct FreeAligned {
    void operator()(std::byte* memory) const;
  };

  Status parse(FrameSink& sink);
  Status begin_frame(FrameSink& sink);
  void note_payload(const std::byte* begin, std::size_t bytes);
  Status on_link_frame();
  void take_payload(FrameSink& sink);
  void deliver_staged(std::size_t available, FrameSink& sink);
  void align_payload();
  std::size_t payload_rest() const { return header_.payload_bytes - payload_done_; }

  Rank peer_;
  Carries carries_;
  std::size_t head_bytes_;  // of a frame before its payload
  std::unique_ptr<SumCheck> sums_;
  std::unique_ptr<std::byte[], FreeAligned> staging_;
  std::size_t begin_ = 0;  // of the bytes in staging that are not parsed
  std::size_t end_ = 0;
  bool in_payload_ = false;
  FrameHeader header_;
  Placement placement_;
  std::size_t payload_done_ = 0;  // placed, handed over or discarded
  std::uint64_t data_bytes_ = 0;
  bool ended_ = false;
  std::uint32_t ended_streams_ = 0;
};

}  // namespace unisono::tcp
