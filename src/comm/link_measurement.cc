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
constexpr int kShortExchanges = 4;
constexpr std::size_t kLongBytes[]{64 * 1024, 256 * 1024, 1024 * 1024};
// A message that takes so long says enough about the rate.
constexpr double kEnoughUs = 250;
// The least of so many counts: another program may have had the core.
constexpr int kSpans = 2;
// A long message is announced and asked for before it moves.
constexpr int kLatenciesOfALong = 3;

class HostRing {
 public:
  HostRing(CommunicatorState& all, const std::vector<Rank>& members, TimePoint deadline)
      : all_(all), deadline_(deadline) {
    const auto self = std::find(members.begin(), members.end(), all.rank());
    if (self == members.end()) return;
    const std::size_t at = static_cast<std::size_t>(self - members.begin());
    next_ = members[(at + 1) % members.size()];
    previous_ = members[(at + members.size() - 1) % members.size()];
    received_.resize(kLongBytes[std::size(kLongBytes) - 1]);
    sent_.resize(received_.size());
  }

  /// Makes the connections.
  Status connect() { return next_ < 0 ? Status() : exchange(kShortBytes); }

  /// What an exchange takes in us, on the slowest host; all ranks get the same. Of `times` in a row
  /// the whole counts: who is late in one finds its message there, and the other waits in the next.
  Result<double> time_exchange(std::size_t bytes, int times) {
    double least = next_ < 0 ? 0 : std::numeric_limits<double>::max();
    for (int span = 0; span < kSpans && next_ >= 0; ++span) {
      const TimePoint start = Clock::now();
      for (int i = 0; i < times; ++i) UNISONO_TRY(exchange(bytes));
      const std::chrono::duration<double, std::micro> took = Clock::now() - start;
      least = std::min(least, took.count() / times);
    }
    return largest(least);
  }

 private:
  CallOptions options() const {
    CallOptions options;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
    options.timeout = std::max(left, std::chrono::milliseconds(1));
    return options;
  }

  Status exchange(std::size_t bytes) {
    const Call calls[]{{.collective = Collective::kReceive,
                        .out = received_.data(),
                        .count = bytes,
                        .type = DataType::kUint8,
                        .peer = previous_,
                        .options = options()},
                       {.collective = Collective::kSend,
                        .in = sent_.data(),
                        .count = bytes,
                        .type = DataType::kUint8,
                        .peer = next_,
                        .options = options()}};
    return run_together(all_, calls, nullptr).status;
  }

  Result<double> largest(double mine) {
    std::vector<double> theirs(static_cast<std::size_t>(all_.size()));
    Call gather{.collective = Collective::kAllGather,
                .in = &mine,
                .out = theirs.data(),
                .count = 1,
                .type = DataType::kFloat64,
                .options = options()};
    // Whatever the settings ask for, nothing is reduced and all rank counts are served.
    gather.options.algorithm = "bruck";
    UNISONO_TRY(all_.run(gather));
    return *std::max_element(theirs.begin(), theirs.end());
  }

  CommunicatorState& all_;
  const TimePoint deadline_;
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

Result<algorithms::LinkFacts> measure_links(CommunicatorState& all, const std::vector<Rank>& hosts,
                                            TimePoint deadline) {
  HostRing ring(all, hosts, deadline);
  UNISONO_TRY(ring.connect());
  algorithms::LinkFacts links;
  UNISONO_ASSIGN(links.latency_us, ring.time_exchange(kShortBytes, kShortExchanges));
  for (const std::size_t bytes : kLongBytes) {
    UNISONO_ASSIGN(const double took, ring.time_exchange(bytes, 1));
    // Of a message that was no longer under way than a short one a tenth counts as moving.
    const double moving = std::max(took - kLatenciesOfALong * links.latency_us, took / 10);
    links.bytes_per_us = static_cast<double>(bytes) / moving;
    if (moving > kEnoughUs) break;
  }
  return links;
}

}  // namespace unisono::detail
