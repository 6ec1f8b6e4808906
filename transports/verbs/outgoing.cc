// See outgoing.h.
#include "transports/verbs/outgoing.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "base/direct_memory.h"
#include "base/log.h"
#include "transports/checksum.h"

namespace unisono::verbs {
namespace {

Status impossible(const char* what) {
  return Status(ErrorCode::kProtocol, std::string("it says it has ") + what);
}

}  // namespace

Outgoing::~Outgoing() {
  for (std::size_t i = 0; i < lent_.size(); ++i) release(&lent_[i]);
}

PostResult Outgoing::post(const FrameHeader& header, std::span<const std::byte> payload,
                          std::uint64_t token) {
  const std::size_t bytes = whole_bytes(payload.size(), shared_.options.checksum);
  const bool fits = SendRing::could_hold(ring_.memory().size(), bytes);
  if (!fits || payload.size() > kWholePayloadMax) return lend(header, payload, token);
  return ring_.append_whole(header, payload) ? PostResult::kDone : PostResult::kFull;
}

PostResult Outgoing::lend(const FrameHeader& header, std::span<const std::byte> payload,
                          std::uint64_t token) {
  // A token that poll() has not handed back yet keeps its place.
  if (lent_.full() || tokens_.size() >= kLentMax) return PostResult::kFull;
  if (!ring_.has_room(kLentBytes)) return PostResult::kFull;
  Lent lent;
  lent.token = token;
  lent.bytes = payload.size();
  Result<Registration*> held = shared_.cache.acquire(payload, message_around(header, payload));
  if (held) {
    lent.held = *held;
    lent.owes_token = true;
    lent.source = source_of(payload.data(), *lent.held);
  } else if (!stage_copy(&lent, payload)) {
    return PostResult::kFull;
  }
  const std::uint64_t sum = shared_.options.checksum ? sum_of_payload(payload) : 0;
  lent.position = ring_.append_lent(header, lent.source, sum).value();
  const bool lends = lent.owes_token;
  lent_.push_back(std::move(lent));
  return lends ? PostResult::kPending : PostResult::kDone;
}

bool Outgoing::stage_copy(Lent* lent, std::span<const std::byte> payload) {
  lent->slot = shared_.staging.take_for_sending();
  if (lent->slot == nullptr) return false;
  copy_bytes(lent->slot, payload.data(), payload.size());
  shared_.counts.staged_bytes += payload.size();
  lent->source = source_of(lent->slot, shared_.staging.registration());
  return true;
}

Source Outgoing::source_of(const std::byte* begin, const Registration& registration) const {
  Source source;
  source.address = reinterpret_cast<std::uint64_t>(begin);
  for (std::size_t rail = 0; rail < shared_.rails.size(); ++rail) {
    source.keys[rail] = registration.rkey(rail);
  }
  return source;
}

void Outgoing::release(Lent* lent) {
  if (lent->held != nullptr) shared_.cache.release(lent->held);
  if (lent->slot != nullptr) shared_.staging.give_back(lent->slot);
  lent->held = nullptr;
  lent->slot = nullptr;
  lent->copy.reset();
}

bool Outgoing::is_exposed(std::uint64_t token) {
  for (std::size_t i = 0; i < lent_.size(); ++i) {
    const Lent& lent = lent_[i];
    if (lent.owes_token && lent.token == token && ring_.is_posted(lent.position)) return true;
  }
  return false;
}

// All pieces of a message have its token.
void Outgoing::cancel(std::uint64_t token) {
  for (std::size_t i = 0; i < lent_.size(); ++i) {
    Lent& lent = lent_[i];
    if (!lent.owes_token || lent.token != token) continue;
    lent.owes_token = false;
    keep_copy(&lent);
  }
  // Some were perhaps read already and only not handed back yet.
  for (std::size_t left = tokens_.size(); left > 0; --left) {
    const std::uint64_t each = tokens_.front();
    tokens_.pop_front();
    if (each != token) tokens_.push_back(each);
  }
}

// Null: there is no memory for it.
std::unique_ptr<RailMemory> Outgoing::copy_of(const Lent& lent) const {
  try {
    Result<std::unique_ptr<RailMemory>> copy = RailMemory::make(shared_.rails, lent.bytes);
    if (copy) {
      copy_bytes((*copy)->begin(), reinterpret_cast<const std::byte*>(lent.source.address),
                 lent.bytes);
      return std::move(*copy);
    }
    log::warning("a cancelled frame could not be kept: " + copy.error().message());
  } catch (const std::bad_alloc&) {
  }
  return nullptr;
}

void Outgoing::keep_copy(Lent* lent) {
  std::unique_ptr<RailMemory> copy = copy_of(*lent);
  release(lent);
  if (copy == nullptr) {
    // Its keys are worth nothing now: a peer that reads it loses the link, which is true enough.
    lent->source = Source{};
  } else {
    lent->copy = std::move(copy);
    lent->source = source_of(lent->copy->begin(), lent->copy->registration());
  }
  if (lent->position >= ring_.consumed()) ring_.move_source(lent->position, lent->source);
}

Status Outgoing::resume(const Hello& hello) {
  if (!ring_.rewind(hello.consumed)) return impossible("consumed what was not sent");
  if (hello.ring_bytes != ring_.memory().size()) {
    return Status(ErrorCode::kProtocol, "its ring has " + std::to_string(hello.ring_bytes) +
                                            " bytes, this rank's " +
                                            std::to_string(ring_.memory().size()));
  }
  ring_address_ = hello.ring_address;
  ring_keys_ = hello.ring_keys;
  writes_max_ = std::min<std::size_t>(hello.immediates, kWritesMax);
  writes_.clear();
  return hello.read >= first_ ? finish_until(hello.read) : impossible("unread what it had read");
}

void Outgoing::stage(QueuePair& control) {
  while (writes_.size() < writes_max_ && control.transfer_bytes_max() > 0) {
    const SendRing::Piece piece = ring_.next_piece(control.transfer_bytes_max());
    if (piece.bytes == 0) break;
    control.stage_write({memory_->begin() + piece.offset, piece.bytes,
                         memory_->registration().lkey(control.rail_index())},
                        {ring_address_ + piece.offset, ring_keys_[control.peer_rail()]},
                        encode(ImmediateKind::kWritten, piece.end / kLine));
    ring_.posted(piece);
    writes_.push_back(piece.end);
  }
}

Status Outgoing::consumed(std::uint32_t value) {
  const std::uint64_t position = extend(ring_.consumed() / kLine, value) * kLine;
  if (!ring_.consumed(position)) return impossible("consumed what was not sent");
  while (!writes_.empty() && writes_.front() <= position) writes_.pop_front();
  return Status();
}

Status Outgoing::read(std::uint32_t value) { return finish_until(extend(first_, value)); }

Status Outgoing::finish_until(std::uint64_t count) {
  if (count > lent_count()) return impossible("read what was not lent");
  while (first_ < count) finish_first();
  return Status();
}

void Outgoing::finish_first() {
  Lent& lent = lent_.front();
  if (lent.owes_token) tokens_.push_back(lent.token);
  release(&lent);
  lent_.pop_front();
  ++first_;
}

bool Outgoing::return_tokens(Rank peer, FrameSink& sink) {
  bool any = false;
  for (; !tokens_.empty(); any = true) {
    const std::uint64_t token = tokens_.front();
    tokens_.pop_front();
    sink.sent(peer, token);
  }
  return any;
}

void Outgoing::drop(Rank peer, FrameSink& sink) {
  while (!lent_.empty()) finish_first();
  return_tokens(peer, sink);
}

std::vector<Source> Outgoing::sources() const {
  std::vector<Source> sources;
  for (std::size_t i = 0; i < lent_.size(); ++i) sources.push_back(lent_[i].source);
  return sources;
}

}  // namespace unisono::verbs
