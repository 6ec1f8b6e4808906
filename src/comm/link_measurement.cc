#include "comm/link_measurement.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <set>

#include "base/collective.h"
#include "comm/communicator_state.h"
#include "rendezvous/messages/peer_information.h"

namespace unisono::detail {
namespace {

constexpr std::size_t kLongBytes[]{64 * 1024, 256 * 1024, 1024 * 1024};
// A message that takes so long says enough about the rate.
constexpr double kEnoughUs = 250;
// A long message is announced and asked for before it moves.
constexpr int kLatenciesOfALong = 3;

// Exchanges in a row are timed as one: who is late in the first finds its message there, and the
// other waits in the second. The least of several rows counts: others may have had the core.
struct Exchanges {
  std::size_t bytes;
  int in_a_row;
  int rows;
};
constexpr Exchanges kShort{.bytes = 8, .in_a_row = 2, .rows = 8};

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
  Status connect() { return next_ < 0 ? Status() : exchange(kShort.bytes); }

  /// What an exchange takes in us, on the slowest host; all ranks get the same.
  Result<double> time(const Exchanges& what) {
    double least = next_ < 0 ? 0 : std::numeric_limits<double>::max();
    for (int row = 0; row < what.rows && next_ >= 0; ++row) {
      const TimePoint start = Clock::now();
      for (int i = 0; i < what.in_a_row; ++i) UNISONO_TRY(exchange(what.bytes));
      const std::chrono::duration<double, std::micro> took = Clock::now() - start;
      least = std::min(least, took.count() / what.in_a_row);
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
    const CallOptions in_time = options();
    const Call calls[]{{.collective = Collective::kReceive,
                        .out = received_.data(),
                        .count = bytes,
                        .type = DataType::kUint8,
                        .peer = previous_,
                        .options = in_time},
                       {.collective = Collective::kSend,
                        .in = sent_.data(),
                        .count = bytes,
                        .type = DataType::kUint8,
                        .peer = next_,
                        .options = in_time}};
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
    gather.options.algorithm = kAutomaticAlgorithm;
    UNISONO_TRY(all_.run(gather).status);
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
  std::set<HostKey> seen;
  std::vector<Rank> ranks;
  for (const Member& member : job) {
    if (seen.insert(host_key(member)).second) ranks.push_back(member.rank);
  }
  return ranks;
}

Result<algorithms::LinkFacts> measure_links(CommunicatorState& all, const std::vector<Rank>& hosts,
                                            TimePoint deadline) {
  HostRing ring(all, hosts, deadline);
  UNISONO_TRY(ring.connect());
  algorithms::LinkFacts links;
  UNISONO_ASSIGN(links.latency_us, ring.time(kShort));
  for (const std::size_t bytes : kLongBytes) {
    UNISONO_ASSIGN(const double took, ring.time({.bytes = bytes, .in_a_row = 1, .rows = 2}));
    // Of a message that was no longer under way than a short one a tenth counts as moving.
    const double moving = std::max(took - kLatenciesOfALong * links.latency_us, took / 10);
    links.bytes_per_us = static_cast<double>(bytes) / moving;
    if (moving > kEnoughUs) break;
  }
  return links;
}

}  // namespace unisono::detail
