// What every rank of a conformance case does; see seat.h.
#include "tests/transport/seat.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <iterator>

namespace unisono::test {
namespace {

constexpr auto kPatience = std::chrono::seconds(20);
constexpr std::byte kSpoilt{0xee};

}  // namespace

PostResult Seat::try_send(Rank peer, const Message& message) {
  FrameHeader header;
  header.payload_bytes = static_cast<std::uint32_t>(message.bytes);
  header.kind = message.kind;
  header.frame_class = message.frame_class;
  header.communicator = 7;
  header.index = message.index;
  header.sequence = next_sequence_[peer];
  header.offset = message.kind == FrameKind::kData ? 64 : 0;
  header.total_bytes = message.bytes + header.offset;
  header.record.count = message.bytes;
  header.record.root = rank_;
  std::vector<std::byte> buffer(message.bytes);
  fill_payload(buffer, rank_, header.sequence);
  const std::uint64_t token = next_token_++;

  recorder_.enter_post();
  const PostResult result = transport_->endpoint(peer).post_send(header, buffer, token);
  recorder_.leave_post();
  if (result != PostResult::kFull) ++next_sequence_[peer];
  if (result == PostResult::kPending) {
    recorder_.expect_token(peer, token);
    lent_.emplace(token, Lent{peer, std::move(buffer)});
  } else {
    std::fill(buffer.begin(), buffer.end(), kSpoilt);
  }
  return result;
}

bool Seat::send(Rank peer, const Message& message) {
  PostResult result = try_send(peer, message);
  if (result != PostResult::kFull) return true;
  return poll_until([&] { return (result = try_send(peer, message)) != PostResult::kFull; },
                    "room to send");
}

std::uint64_t Seat::send_until_full(Rank peer, const Message& message) {
  std::uint64_t taken = 0;
  const std::uint64_t bound = (std::uint64_t{256} << 20) / std::max<std::size_t>(message.bytes, 64);
  while (try_send(peer, message) != PostResult::kFull) {
    if (++taken < bound) continue;
    ADD_FAILURE() << "the transport took 256 MiB for a peer that does not read";
    break;
  }
  return taken;
}

std::uint64_t Seat::posted(Rank peer) const {
  const auto found = next_sequence_.find(peer);
  return found == next_sequence_.end() ? 0 : found->second;
}

std::uint64_t Seat::cancel_all(Rank peer) {
  std::uint64_t cancelled = 0;
  for (auto at = lent_.begin(); at != lent_.end();) {
    if (at->second.peer != peer) {
      ++at;
      continue;
    }
    transport_->endpoint(peer).cancel(at->first);
    recorder_.forget_token(peer, at->first);
    std::fill(at->second.buffer.begin(), at->second.buffer.end(), kSpoilt);
    at = lent_.erase(at);
    ++cancelled;
  }
  return cancelled;
}

void Seat::free_returned() {
  for (auto at = lent_.begin(); at != lent_.end();) {
    const bool held = recorder_.is_outstanding(at->second.peer, at->first);
    at = held ? std::next(at) : lent_.erase(at);
  }
}

bool Seat::poll() {
  const std::uint64_t before = recorder_.tokens_returned();
  const bool moved = transport_->poll(recorder_);
  if (recorder_.tokens_returned() != before) free_returned();
  return moved;
}

bool Seat::poll_until(const std::function<bool()>& done, const char* what) {
  const TimePoint deadline = Clock::now() + kPatience;
  while (!done()) {
    if (!poll()) sched_yield();
    if (world_.failed()) {
      ADD_FAILURE() << "rank " << rank_ << " waited for " << what << " when another rank failed";
      return false;
    }
    if (Clock::now() > deadline) {
      ADD_FAILURE() << "rank " << rank_ << " waited 20 s for " << what;
      world_.fail();
      return false;
    }
  }
  return true;
}

bool Seat::await(Rank peer, std::uint64_t frames) {
  return poll_until([&] { return recorder_.count(peer) >= frames; }, "frames");
}

bool Seat::await_tokens() {
  return poll_until([&] { return recorder_.tokens_outstanding() == 0; }, "tokens");
}

bool Seat::barrier() {
  const bool all = world_.barrier();
  EXPECT_TRUE(all) << "a rank failed or did not come within 20 s";
  return all;
}

bool Seat::barrier_polling() {
  const bool all = world_.barrier([this] { poll(); });
  EXPECT_TRUE(all) << "a rank failed or did not come within 20 s";
  return all;
}

bool Seat::greet_everyone() {
  for (Rank peer = 0; peer < size(); ++peer) {
    if (peer != rank_ && !send(peer, {})) return false;
  }
  for (Rank peer = 0; peer < size(); ++peer) {
    if (peer != rank_ && !await(peer, 1)) return false;
  }
  return barrier_polling();
}

void Seat::finish() {
  if (!await_tokens() || !barrier_polling()) return;
  close();
}

void Seat::close(Duration within) {
  transport_->close(Clock::now() + within, recorder_);
  EXPECT_EQ(recorder_.tokens_outstanding(), 0u) << "close() keeps buffers of the caller";
  free_returned();
}

}  // namespace unisono::test
