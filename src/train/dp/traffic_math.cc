// Member by member.
#include "train/dp/traffic_math.h"

#include <algorithm>

namespace unisono::train {
namespace {

/// Calls fn(count of a, count of b) for each count.
template <typename Function>
void for_each_count(Traffic& a, const Traffic& b, const Function& fn) {
  fn(a.messages_sent, b.messages_sent);
  fn(a.bytes_sent, b.bytes_sent);
  fn(a.messages_received, b.messages_received);
  fn(a.bytes_received, b.bytes_received);
}

template <typename Function>
void for_each_count(TrafficReport& a, const TrafficReport& b, const Function& fn) {
  for (std::size_t c = 0; c < a.calls.size(); ++c) {
    fn(a.calls[c], b.calls[c]);
    for_each_count(a.by_collective[c], b.by_collective[c], fn);
  }
  const std::size_t peers = std::min(a.by_peer.size(), b.by_peer.size());
  for (std::size_t peer = 0; peer < peers; ++peer) {
    for_each_count(a.by_peer[peer], b.by_peer[peer], fn);
  }
}

}  // namespace

void add(TrafficReport& sum, const TrafficReport& part) {
  for_each_count(sum, part, [](std::uint64_t& a, std::uint64_t b) { a += b; });
}

void subtract(TrafficReport& now, const TrafficReport& before) {
  for_each_count(now, before, [](std::uint64_t& a, std::uint64_t b) { a -= b; });
}

}  // namespace unisono::train
