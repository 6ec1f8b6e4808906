// Member by member; peers that only one of two reports has stay as they are.
#include "tools/train/compare_sums.h"

#include <algorithm>

namespace unisono::train::comparison {
namespace {

template <typename Function>
void for_each_count(Traffic& a, const Traffic& b, const Function& fn) {
  fn(a.messages_sent, b.messages_sent);
  fn(a.bytes_sent, b.bytes_sent);
  fn(a.messages_received, b.messages_received);
  fn(a.bytes_received, b.bytes_received);
}

template <typename Function>
TrafficReport combine(TrafficReport a, const TrafficReport& b, const Function& fn) {
  for (std::size_t c = 0; c < a.calls.size(); ++c) {
    fn(a.calls[c], b.calls[c]);
    for_each_count(a.by_collective[c], b.by_collective[c], fn);
  }
  a.by_peer.resize(std::max(a.by_peer.size(), b.by_peer.size()));
  for (std::size_t peer = 0; peer < b.by_peer.size(); ++peer) {
    for_each_count(a.by_peer[peer], b.by_peer[peer], fn);
  }
  return a;
}

}  // namespace

TrafficReport plus(TrafficReport a, const TrafficReport& b) {
  return combine(std::move(a), b, [](std::uint64_t& x, std::uint64_t y) { x += y; });
}

TrafficReport minus(TrafficReport after, const TrafficReport& before) {
  return combine(std::move(after), before, [](std::uint64_t& x, std::uint64_t y) { x -= y; });
}

TrafficReport times(TrafficReport report, std::uint64_t factor) {
  const TrafficReport same = report;
  return combine(std::move(report), same,
                 [factor](std::uint64_t& x, std::uint64_t) { x *= factor; });
}

bool are_equal(const TrafficReport& a, const TrafficReport& b) {
  bool equal = true;
  combine(a, b, [&equal](std::uint64_t& x, std::uint64_t y) { equal = equal && x == y; });
  return equal && (a.by_peer.size() <= b.by_peer.size() || are_equal(b, a));
}

Traffic total(const TrafficReport& report) {
  Traffic sum;
  for (const Traffic& part : report.by_collective) {
    for_each_count(sum, part, [](std::uint64_t& x, std::uint64_t y) { x += y; });
  }
  return sum;
}

std::uint64_t total_calls(const TrafficReport& report) {
  std::uint64_t calls = 0;
  for (const std::uint64_t count : report.calls) calls += count;
  return calls;
}

std::uint64_t bytes_sent(std::span<const TrafficReport> reports, Collective collective) {
  std::uint64_t bytes = 0;
  for (const TrafficReport& report : reports) {
    bytes += report.by_collective[static_cast<std::size_t>(collective)].bytes_sent;
  }
  return bytes;
}

std::uint64_t bytes_sent(std::span<const TrafficReport> reports) {
  std::uint64_t bytes = 0;
  for (const TrafficReport& report : reports) bytes += total(report).bytes_sent;
  return bytes;
}

}  // namespace unisono::train::comparison
