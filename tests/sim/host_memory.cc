#include "tests/sim/host_memory.h"

#include <unistd.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "transports/shm/segment_group.h"

namespace unisono::sim {
namespace {

using Segments = std::vector<std::shared_ptr<shm::SharedSegment>>;

// One more than any job has: only groups of all ranks of a host go by what earlier calls have
// shown, and a seed is to do the same each time.
constexpr int kSegmentRanks = kSharingRanksMax + 1;
constexpr auto kPatience = std::chrono::seconds(60);

[[noreturn]] void give_up(const Status& why) {
  throw std::runtime_error("the simulation's ranks cannot share memory: " + why.message());
}

// They meet as ranks do, who wait for each other: each in a thread, and this once.
Segments meet(Sharing sharing) {
  std::vector<std::unique_ptr<shm::LocalListener>> listeners;
  for (int rank = 0; rank < kSegmentRanks; ++rank) {
    auto listener = shm::LocalListener::open();
    if (!listener) give_up(listener.error());
    listeners.push_back(std::move(*listener));
  }
  Segments segments(kSegmentRanks);
  std::vector<Status> failures(kSegmentRanks);
  std::vector<std::thread> threads;
  for (int self = 0; self < kSegmentRanks; ++self) {
    threads.emplace_back([&, self] {
      const auto index = static_cast<std::size_t>(self);
      shm::LocalPeers peers;
      peers.job_id = "simulation";
      peers.self = self;
      peers.cores = kSegmentRanks;
      for (int rank = 0; rank < kSegmentRanks; ++rank) {
        peers.world_ranks.push_back(rank);
        peers.pids.push_back(getpid());
        peers.addresses.push_back(listeners[static_cast<std::size_t>(rank)]->address());
      }
      // A rank takes the others for threads of its own process where they have its number.
      if (sharing == Sharing::kProcesses) peers.pids[index] = -1;
      auto opened =
          shm::SharedSegment::open(*listeners[index], std::move(peers), Clock::now() + kPatience);
      if (!opened) {
        failures[index] = opened.error();
      } else {
        segments[index] = std::move(*opened);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Status& failure : failures) {
    if (!failure) give_up(failure);
  }
  return segments;
}

const Segments& segments_of(Sharing sharing) {
  if (sharing == Sharing::kThreads) {
    static const Segments threads = meet(Sharing::kThreads);
    return threads;
  }
  static const Segments processes = meet(Sharing::kProcesses);
  return processes;
}

}  // namespace

HostMemory::HostMemory(Sharing sharing, int domain_ranks)
    : ranks_(segments_of(sharing)),
      levels_{domain_ranks == 0 ? LevelsBy::kOff : LevelsBy::kCount, domain_ranks} {}

HostMemory::~HostMemory() {
  for (const auto& [id, block] : blocks_) {
    if (block.unopened > 0) of(0).return_block(block.number);
  }
}

std::unique_ptr<native::Group> HostMemory::open(std::uint32_t id, const std::vector<Rank>& members,
                                                Rank rank) {
  auto found = blocks_.find(id);
  if (found == blocks_.end()) {
    const Result<std::uint32_t> number = of(rank).reserve_block();
    if (!number) give_up(number.error());
    found = blocks_.emplace(id, Block{*number, members.size()}).first;
  }
  auto group = of(rank).open_group(found->second.number, {members.begin(), members.end()});
  if (!group) give_up(group.error());
  --found->second.unopened;
  const std::vector<Place> places(members.size());
  return std::make_unique<native::Group>(std::move(*group), native::levels_of(places, levels_));
}

}  // namespace unisono::sim
