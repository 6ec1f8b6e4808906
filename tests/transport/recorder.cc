// The rules of FrameSink as expectations; see recorder.h.
#include "tests/transport/recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tests/support/same_bytes.h"
#include "tests/transport/payload.h"

namespace unisono::test {
namespace {

bool same(const FrameHeader& a, const FrameHeader& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

void fill_payload(std::span<std::byte> payload, Rank from, std::uint64_t sequence) {
  const std::vector<std::byte> made = payload_of(from, sequence, payload.size());
  std::copy(made.begin(), made.end(), payload.begin());
}

void Recorder::check_call(Rank peer, const char* call) {
  EXPECT_EQ(posts_running_, 0) << call << " was called from within post_send";
  EXPECT_EQ(closed_.count(peer), 0u) << call << " after closed() of rank " << peer;
}

Recorder::Arriving* Recorder::find(Rank peer, const FrameHeader& header, const char* call) {
  for (Arriving& frame : arriving_[peer]) {
    if (same(frame.header, header)) return &frame;
  }
  ADD_FAILURE() << call << " for a frame of rank " << peer << " that was not placed";
  return nullptr;
}

Placement Recorder::place(Rank peer, const FrameHeader& header) {
  check_call(peer, "place");
  EXPECT_LE(header.payload_bytes, kLentPayloadMax);
  Arriving frame;
  frame.header = header;
  frame.kind = choose_placement ? choose_placement(header) : Placement::Kind::kInto;
  frame.memory.resize(header.payload_bytes);
  Placement placement{frame.kind, nullptr};
  if (frame.kind == Placement::Kind::kInto) placement.target = frame.memory.data();
  arriving_[peer].push_back(std::move(frame));
  return placement;
}

void Recorder::deliver(Rank peer, const FrameHeader& header, std::size_t offset,
                       std::span<const std::byte> piece) {
  check_call(peer, "deliver");
  ++pieces_;
  Arriving* frame = find(peer, header, "deliver");
  if (frame == nullptr) return;
  EXPECT_EQ(frame->kind, Placement::Kind::kDeliver);
  EXPECT_EQ(offset % 64, 0u) << "a piece begins in the middle of a line";
  EXPECT_EQ(offset, frame->delivered) << "pieces come in order and without gaps";
  EXPECT_FALSE(piece.empty());
  ASSERT_LE(offset + piece.size(), frame->memory.size());
  std::memcpy(frame->memory.data() + offset, piece.data(), piece.size());
  frame->delivered = offset + piece.size();
}

void Recorder::received(Rank peer, const FrameHeader& header) {
  check_call(peer, "received");
  Arriving* frame = find(peer, header, "received");
  if (frame == nullptr) return;
  EXPECT_TRUE(sequences_[peer].insert(header.sequence).second)
      << "frame " << header.sequence << " of rank " << peer << " came twice";
  if (header.kind != FrameKind::kData) {
    EXPECT_GE(header.sequence, next_sequence_[peer]) << "out of order from rank " << peer;
    next_sequence_[peer] = header.sequence + 1;
  }
  if (frame->kind == Placement::Kind::kDeliver) {
    EXPECT_EQ(frame->delivered, header.payload_bytes);
  }
  if (frame->kind != Placement::Kind::kDiscard && !frame->abandoned) {
    const std::vector<std::byte> expected = payload_of(peer, header.sequence, header.payload_bytes);
    EXPECT_TRUE(same_bytes(expected, frame->memory))
        << "the payload of frame " << header.sequence << " of rank " << peer << " differs";
  }
  std::vector<Arriving>& of_peer = arriving_[peer];
  last_memory_ = std::move(frame->memory);
  of_peer.erase(of_peer.begin() + (frame - of_peer.data()));
  arrived_[peer].push_back(header);
  if (on_received) on_received(peer, header);
}

void Recorder::sent(Rank peer, std::uint64_t token) {
  check_call(peer, "sent");
  ++tokens_returned_;
  EXPECT_EQ(outstanding_[peer].erase(token), 1u)
      << "token " << token << " was not outstanding to rank " << peer;
}

void Recorder::closed(Rank peer, const Status& cause) {
  check_call(peer, "closed");
  EXPECT_TRUE(outstanding_[peer].empty()) << "closed() before every token was returned";
  closed_.emplace(peer, cause);
}

std::uint64_t Recorder::count(Rank peer) const {
  const auto found = arrived_.find(peer);
  return found == arrived_.end() ? 0 : found->second.size();
}

std::size_t Recorder::tokens_outstanding() const {
  std::size_t count = 0;
  for (const auto& [peer, tokens] : outstanding_) count += tokens.size();
  return count;
}

std::size_t Recorder::tokens_outstanding(Rank peer) const {
  const auto found = outstanding_.find(peer);
  return found == outstanding_.end() ? 0 : found->second.size();
}

bool Recorder::is_outstanding(Rank peer, std::uint64_t token) const {
  const auto found = outstanding_.find(peer);
  return found != outstanding_.end() && found->second.count(token) > 0;
}

std::optional<Status> Recorder::closed_cause(Rank peer) const {
  const auto found = closed_.find(peer);
  if (found == closed_.end()) return std::nullopt;
  return found->second;
}

std::span<std::byte> Recorder::memory_in_use(Rank peer) {
  std::vector<Arriving>& of_peer = arriving_[peer];
  if (of_peer.empty()) return {};
  return of_peer.front().memory;
}

void Recorder::expect_abandoned(Rank peer) {
  for (Arriving& frame : arriving_[peer]) frame.abandoned = true;
}

}  // namespace unisono::test
