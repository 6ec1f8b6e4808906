#include "objects/stream.h"

#include <algorithm>

namespace unisono::objects {
namespace {

std::size_t index(Rank rank) { return static_cast<std::size_t>(rank); }

}  // namespace

Stream::Stream(Communicator& communicator, Pattern pattern, Rank root, const ObjectSource& source,
               const ObjectSink* sink, const CallOptions& options)
    : communicator_(communicator),
      pattern_(pattern),
      root_(root),
      rank_(communicator.rank()),
      source_(source),
      sink_(sink),
      options_(options) {}

void Stream::run(std::vector<std::uint64_t> sizes, std::uint64_t bound) {
  Rounds rounds(std::move(sizes), bound);
  Staging staging(staging_bytes(rounds));
  for (bool is_first = true; rounds.next() || is_first; is_first = false) {
    const std::byte* own = make_own_piece(rounds, staging);
    if (rounds.bytes() > 0) exchange(rounds, own, staging);
    if (sink_ != nullptr) deliver(rounds, own, staging, is_first);
  }
}

bool Stream::sends() const { return pattern_ != Pattern::kBroadcast || rank_ == root_; }

// A rank that only sends from memory needs none.
std::size_t Stream::staging_bytes(const Rounds& rounds) const {
  if (sink_ != nullptr) return rounds.bytes_max();
  if (!sends() || !source_.is_produced()) return 0;
  return std::min<std::uint64_t>(rounds.sizes()[index(rank_)], rounds.bytes_max());
}

const std::byte* Stream::make_own_piece(const Rounds& rounds, Staging& staging) {
  const std::size_t count = rounds.counts()[index(rank_)];
  if (!sends() || count == 0) return nullptr;
  const std::uint64_t offset = rounds.offsets()[index(rank_)];
  if (!source_.is_produced()) return source_.bytes().data() + offset;
  const std::size_t place = sink_ != nullptr ? rounds.places()[index(rank_)] : 0;
  const std::span<std::byte> room = staging.part(place, count);
  if (!producer_failed_) {
    try {
      source_.producer()(offset, room);
    } catch (...) {
      producer_failed_ = true;
      if (failure_ == nullptr) failure_ = std::current_exception();
    }
  }
  // What the staging held before is nobody's business.
  if (producer_failed_) std::fill(room.begin(), room.end(), std::byte{0});
  return room.data();
}

void Stream::exchange(const Rounds& rounds, const std::byte* own, Staging& staging) {
  switch (pattern_) {
    case Pattern::kGather:
      // The root's own piece is there already.
      counts_.assign(rounds.counts().begin(), rounds.counts().end());
      counts_[index(root_)] = 0;
      communicator_.gather_v(own, counts_[index(rank_)], staging.data(), counts_, rounds.places(),
                             kByte, root_, options_);
      return;
    case Pattern::kAllGather:
      communicator_.all_gather_v(own, staging.data(), rounds.counts(), rounds.places(), kByte,
                                 options_);
      return;
    case Pattern::kBroadcast:
      // The root's buffer is only read.
      communicator_.broadcast(rank_ == root_ ? const_cast<std::byte*>(own) : staging.data(),
                              rounds.bytes(), kByte, root_, options_);
      return;
  }
}

void Stream::deliver(const Rounds& rounds, const std::byte* own, Staging& staging, bool is_first) {
  for (Rank rank = 0; rank < communicator_.size(); ++rank) {
    if (pattern_ == Pattern::kBroadcast && rank != root_) continue;
    const std::size_t count = rounds.counts()[index(rank)];
    const std::uint64_t size = rounds.sizes()[index(rank)];
    if (count == 0 && !(is_first && size == 0)) continue;
    const std::byte* bytes =
        rank == rank_ ? own : staging.part(rounds.places()[index(rank)], count).data();
    hand_over({.source = rank,
               .offset = rounds.offsets()[index(rank)],
               .size = size,
               .bytes = {bytes, count}});
  }
}

void Stream::hand_over(const ObjectPiece& piece) {
  if (sink_failed_) return;
  try {
    (*sink_)(piece);
  } catch (...) {
    sink_failed_ = true;
    if (failure_ == nullptr) failure_ = std::current_exception();
  }
}

}  // namespace unisono::objects
