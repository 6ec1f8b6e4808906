#include "comm/link_measurement.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <set>
#include <tuple>

#include "comm/communicator_state.h"

namespace unisono::detail {
namespace {

constexpr std::size_t kShortBytes = 8;
// The first makes the connections.
constexpr int kShortExchanges = 6;
constexpr std::size_t kLongBytes[]{64 * 1024, 256 * 1024, 1024 * 1024};
constexpr int kLongExchanges = 2;
// A message that takes so long says enough about the rate.
constexpr double kEnoughUs = 250;

class HostRing {
 public:
  HostRing(CommunicatorState& all, const std::vector<Rank>& members)
      : all_(all), received_(kLongBytes[std::size(kLongBytes) - 1]), sent_(received_.size()) {
    const auto self = std::find(members.begin(), members.end(), all.rank());
    if (self == members.end()) return;
    const std::size_t at = static_cast<std::size_t>(self - members.begin());
    next_ = members[(at + 1) % members.size()];
    previous_ = members[(at + members.size() - 1) % members.size()];
  }

  /// The least time of an exchange, in us, on the slowest host. All ranks get the same.
  Result<double> time_exchange(std::size_t bytes, int times) {
    double least = next_ < 0 ? 0 : std::numeric_limits<double>::max();
    for (int i = 0; i < times && next_ >= 0; ++i) {
      const TimePoint start = Clock::now();
      UNISONO_TRY(exchange(bytes));
      const std::chrono::duration<double, std::micro> took = Clock::now() - start;
      least = std::min(least, took.count());
    }
    return largest(least);
  }

 private:
  Status exchange(std::size_t bytes) {
    const Call calls[]{{.collective = Collective::kReceive,
                        .out = received_.data(),
                        .count = bytes,
                        .type = DataType::kUint8,
                        .peer = previous_},
                       {.collective = Collective::kSend,
                        .in = sent_.data(),
                        .count = bytes,
                        .type = DataType::kUint8,
                        .peer = next_}};
    return run_together(all_, calls, nullptr).status;
  }

  Result<double> largest(double mine) {
    std::vector<double> theirs(static_cast<std::size_t>(all_.size()));
    // Whatever the settings ask for, nothing is reduced and all rank counts are served.
    UNISONO_TRY(all_.run({.collective = Collective::kAllGather,
                          .in = &mine,
                          .out = theirs.data(),
                          .count = 1,
                          .type = DataType::kFloat64,
                          .options = {.algorithm = "bruck"}}));
    return *std::max_element(theirs.begin(), theirs.end());
  }

  CommunicatorState& all_;
  Rank next_ = -1;  // -1: this rank only hears of it
  Rank previous_ = -1;
  std::vector<std::uint8_t> received_, sent_;
};

}  // namespace

std::vector<Rank> first_of_hosts(std::span<const Member> job) {
  std::set<std::tuple<std::string, std::uint64_t, std::uint64_t>> seen;
  std::vector<Rank> ranks;
  for (const Member& member : job) {
    if (seen.emplace(member.host, member.network_namespace, member.uid).second) {
      ranks.push_back(member.rank);
    }
  }
  return ranks;
}

Result<algorithms::LinkFacts> measure_links(CommunicatorState& all,
                                            const std::vector<Rank>& first_of_hosts) {
  HostRing ring(all, first_of_hosts);
  algorithms::LinkFacts links;
  UNISONO_ASSIGN(links.latency_us, ring.time_exchange(kShortBytes, kShortExchanges));
  for (const std::size_t bytes : kLongBytes) {
    UNISONO_ASSIGN(const double took, ring.time_exchange(bytes, kLongExchanges));
    // A long message that was as fast as a short one: a tenth of its time counts as its own.
    const double moving = std::max(took - links.latency_us, took / 10);
    links.bytes_per_us = static_cast<double>(bytes) / moving;
    if (took > kEnoughUs) break;
  }
  return links;
}

}  // namespace unisono::detail
