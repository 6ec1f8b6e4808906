// Frames that wait to be sent, and how far the first has got. No sockets: the owner gathers bytes,
// sends what the kernel takes and says how much that was. Owned by a Stream, and by a PeerLink for
// what any of its streams may send.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transports/tcp/frame_sums.h"
#include "transports/transport.h"

namespace unisono::tcp {

class FrameWriter {
 public:
  /// `has_sums`: every frame gets checksums.
  explicit FrameWriter(bool has_sums = false)
      : head_bytes_(has_sums ? sizeof(FrameHead) : sizeof(FrameHeader)) {}

  /// Frames of the engine that may wait; two more places are kept for frames of this transport.
  static constexpr std::size_t kFramesMax = 64;

  bool empty() const { return count_ == 0; }
  bool full() const { return count_ >= kFramesMax; }
  /// Bytes not yet taken by the kernel, headers included.
  std::size_t queued_bytes() const { return queued_bytes_; }

  bool has_sums() const { return head_bytes_ == sizeof(FrameHead); }
  /// Of a frame before its payload.
  std::size_t head_bytes() const { return head_bytes_; }
  /// With has_sums() and empty(): those of the frame that is the next to be sent.
  FrameSums next_sums(const FrameHeader& header, std::span<const std::byte> payload) {
    return sums_of(header, payload, number_++);
  }

  /// Queues a frame of which `sent` bytes have gone already. Payload is lent until the frame ends.
  /// `sums`: of next_sums(), if it was asked.
  void push(const FrameHeader& header, std::span<const std::byte> payload, std::uint64_t token,
            std::size_t sent = 0, const FrameSums* sums = nullptr);
  /// The first frame waits at the end of `to` instead. Nothing of it may have been sent.
  void move_first_to(FrameWriter* to);
  /// Fills `out` with the next bytes to send, at most about `bytes_max`. Returns entries used.
  int gather(std::span<iovec> out, std::size_t bytes_max);
  /// Payloads lent with `token` are not referenced afterwards: as Endpoint::cancel(). False: there
  /// was no memory to copy one, and nothing can be sent any more.
  bool cancel(std::uint64_t token);

  /// Counts `bytes` as sent; `ended(token)` for each frame that lent its payload and is complete.
  template <typename Ended>
  void advance(std::size_t bytes, Ended&& ended) {
    queued_bytes_ -= bytes;
    while (count_ > 0) {
      Pending& frame = at(0);
      const std::size_t rest = bytes_of(frame) - frame.sent;
      if (bytes < rest) {
        frame.sent += bytes;
        return;
      }
      bytes -= rest;
      end_first(ended);
    }
  }

  /// Forgets everything, as when the stream is lost.
  template <typename Ended>
  void drop_all(Ended&& ended) {
    queued_bytes_ = 0;
    while (count_ > 0) end_first(ended);
  }

 private:
  struct Pending {
    FrameHead head;
    std::span<const std::byte> payload;
    std::uint64_t token = 0;
    std::size_t sent = 0;
    bool lent = false;
    bool summed = false;
    std::vector<std::byte> copy;  // the payload of a cancelled frame that is sent all the same
  };
  static constexpr std::size_t kPlaces = kFramesMax + 2;

  Pending& at(std::size_t index) { return frames_[(first_ + index) % kPlaces]; }
  std::size_t bytes_of(const Pending& frame) const { return head_bytes_ + frame.payload.size(); }
  void sum_up(Pending* frame);
  static bool take_copy(Pending* frame);

  template <typename Ended>
  void end_first(Ended&& ended) {
    const bool lent = at(0).lent;
    const std::uint64_t token = at(0).token;
    at(0).copy = {};
    first_ = (first_ + 1) % kPlaces;
    --count_;
    if (lent) ended(token);
  }

  std::array<Pending, kPlaces> frames_;
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::size_t queued_bytes_ = 0;
  std::size_t head_bytes_;
  std::uint64_t number_ = 0;  // of the next frame that gets sums
};

}  // namespace unisono::tcp
