// What a parser of frames gives its frames to, in every target that reads frames.
#pragma once

#include <cstring>
#include <memory>

#include "tests/fuzz/target.h"
#include "transports/transport.h"

namespace unisono::fuzz {

/// An engine that wants each payload somewhere else, by the dice, and holds who reads frames to
/// FrameSink's contract.
class StrictSink : public FrameSink {
 public:
  explicit StrictSink(Dice* dice) : dice_(dice) {}

  Placement place(Rank, const FrameHeader& header) override {
    require(!open_, "two frames at once");
    require(header.payload_bytes <= kLentPayloadMax, "a payload above the limit");
    open_ = true;
    kind_ = static_cast<Placement::Kind>(dice_->below(3));
    offset_ = 0;
    bytes_ = header.payload_bytes;
    // Of its own size, so that a byte too many is seen by the address sanitizer.
    memory_ = std::make_unique<std::byte[]>(bytes_);
    return {kind_, kind_ == Placement::Kind::kInto ? memory_.get() : nullptr};
  }
  void deliver(Rank, const FrameHeader&, std::size_t offset,
               std::span<const std::byte> piece) override {
    require(open_ && kind_ == Placement::Kind::kDeliver, "a delivery that nobody asked for");
    require(offset == offset_ && piece.size() <= bytes_ - offset, "a piece out of its place");
    if (!piece.empty()) std::memcpy(memory_.get() + offset, piece.data(), piece.size());
    offset_ += piece.size();
  }
  void received(Rank, const FrameHeader&) override {
    require(open_, "a frame that was not placed");
    require(kind_ != Placement::Kind::kDeliver || offset_ == bytes_, "half a frame");
    open_ = false;
  }
  void sent(Rank, std::uint64_t) override { require(false, "sent() by a reader"); }
  void closed(Rank, const Status&) override { require(false, "closed() by a reader"); }

 protected:
  bool open() const { return open_; }
  Placement::Kind kind() const { return kind_; }
  std::span<std::byte> memory() { return {memory_.get(), bytes_}; }

  /// The operation fails: its memory goes away. What comes of the frame is discarded.
  void give_back() {
    memory_.reset();
    kind_ = Placement::Kind::kDiscard;
  }

 private:
  Dice* dice_;
  bool open_ = false;
  Placement::Kind kind_ = Placement::Kind::kDiscard;
  std::unique_ptr<std::byte[]> memory_;
  std::size_t bytes_ = 0;
  std::size_t offset_ = 0;
};

}  // namespace unisono::fuzz
