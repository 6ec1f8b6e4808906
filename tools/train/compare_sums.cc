#include "tools/train/compare_sums.h"

#include <algorithm>
#include <utility>

namespace unisono::train::comparison {
namespace {

template <typename Function>
TrafficReport with_each_count(TrafficReport report, const Function& change) {
  const auto change_traffic = [&](Traffic& traffic) {
    for (std::uint64_t* count : {&traffic.messages_sent, &traffic.bytes_sent,
                                 &traffic.messages_received, &traffic.bytes_received}) {
      change(*count);
    }
  };
  for (std::uint64_t& calls : report.calls) change(calls);
  for (Traffic& kind : report.by_collective) change_traffic(kind);
  for (Traffic& peer : report.by_peer) change_traffic(peer);
  return report;
}

}  // namespace

TrafficReport times(TrafficReport report, std::uint64_t factor) {
  return with_each_count(std::move(report), [=](std::uint64_t& count) { count *= factor; });
}

TrafficReport per_step(TrafficReport report, std::uint64_t steps) {
  return with_each_count(std::move(report), [=](std::uint64_t& count) { count /= steps; });
}

bool are_equal(TrafficReport a, TrafficReport b) {
  const std::size_t peers = std::max(a.by_peer.size(), b.by_peer.size());
  a.by_peer.resize(peers);
  b.by_peer.resize(peers);
  return a == b;
}

Traffic total(const TrafficReport& report) {
  Traffic sum;
  for (const Traffic& part : report.by_collective) sum += part;
  return sum;
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
