#include "comm/split.h"

#include <algorithm>
#include <numeric>

#include "transports/shm/fabric_group.h"

namespace unisono::detail {
namespace {

// A communicator's number names it together with its lowest world rank, so that groups which split
// at the same time without knowing of each other cannot collide.
constexpr std::uint32_t kRankBits = 12;
constexpr std::uint32_t kNumberMax = (1u << (32 - kRankBits)) - 2;

std::uint32_t make_id(std::uint32_t number, Rank lowest) {
  return number << kRankBits | static_cast<std::uint32_t>(lowest);
}

struct Vote {
  std::int32_t color;
  std::int32_t key;
  std::uint32_t next_number;
  std::uint32_t padding = 0;
};

// What the members of one part tell each other about shared memory.
struct Offer {
  std::uint32_t block = 0;
  std::uint32_t usable = 0;
};

template <typename T>
Result<std::vector<T>> share(CommunicatorState& parent, const T& mine) {
  std::vector<T> all(static_cast<std::size_t>(parent.size()));
  UNISONO_TRY(parent.run({.collective = Collective::kAllGather,
                          .in = &mine,
                          .out = all.data(),
                          .count = sizeof(T),
                          .type = DataType::kUint8}));
  return all;
}

// The fabric's indices of these world ranks, ascending as the ranks; empty when one is elsewhere.
std::vector<int> local_indices(Runtime& runtime, const std::vector<Rank>& members) {
  std::vector<int> indices;
  if (runtime.fabric() == nullptr) return indices;
  for (const Rank member : members) {
    const int index = runtime.fabric()->local_index(member);
    if (index < 0) return {};
    indices.push_back(index);
  }
  return indices;
}

std::unique_ptr<native::Group> open_native(Runtime& runtime, std::uint32_t block,
                                           const std::vector<int>& indices) {
  Result<std::unique_ptr<shm::FabricGroup>> group = runtime.fabric()->open_group(block, indices);
  if (!group) return nullptr;
  return std::make_unique<native::Group>(std::move(*group));
}

}  // namespace

Result<std::shared_ptr<CommunicatorState>> split(CommunicatorState& parent, int color, int key) {
  Runtime& runtime = parent.runtime();
  UNISONO_ASSIGN(const std::vector<Vote> votes,
                 share(parent, Vote{color, key, runtime.next_communicator_number()}));
  // One number for all parts; a rank never uses a number twice.
  std::uint32_t number = 0;
  for (const Vote& vote : votes) number = std::max(number, vote.next_number);
  if (number > kNumberMax) {
    return Status(ErrorCode::kOutOfResources,
                  "more than " + std::to_string(kNumberMax) + " communicators in one job");
  }
  runtime.set_next_communicator_number(number + 1);

  std::vector<Rank> ranks;  // of the parent, in my part
  for (Rank r = 0; r < parent.size(); ++r) {
    if (color >= 0 && votes[static_cast<std::size_t>(r)].color == color) ranks.push_back(r);
  }
  std::stable_sort(ranks.begin(), ranks.end(), [&](Rank a, Rank b) {
    return votes[static_cast<std::size_t>(a)].key < votes[static_cast<std::size_t>(b)].key;
  });
  std::vector<Rank> members;
  for (const Rank r : ranks) members.push_back(parent.members()[static_cast<std::size_t>(r)]);
  const std::vector<int> indices = local_indices(runtime, members);
  const bool leads = !ranks.empty() && ranks.front() == parent.rank();

  Offer offer;
  if (leads && !indices.empty()) {
    const Result<std::uint32_t> block = runtime.fabric()->reserve_block();
    if (block) offer = {*block, 1};
  }
  UNISONO_ASSIGN(std::vector<Offer> offers, share(parent, offer));
  std::unique_ptr<native::Group> native;
  if (!ranks.empty()) {
    const Offer& agreed = offers[static_cast<std::size_t>(ranks.front())];
    if (agreed.usable != 0 && !indices.empty())
      native = open_native(runtime, agreed.block, indices);
  }
  // All members of a part run native collectives, or none does.
  UNISONO_ASSIGN(offers, share(parent, Offer{0, native != nullptr ? 1u : 0u}));
  for (const Rank r : ranks) {
    if (offers[static_cast<std::size_t>(r)].usable == 0) native.reset();
  }
  if (ranks.empty()) return std::shared_ptr<CommunicatorState>();
  const Rank me =
      static_cast<Rank>(std::find(ranks.begin(), ranks.end(), parent.rank()) - ranks.begin());
  const Rank lowest = *std::min_element(members.begin(), members.end());
  return std::make_shared<CommunicatorState>(parent.shared_runtime(), make_id(number, lowest),
                                             std::move(members), me, std::move(native));
}

Result<std::shared_ptr<CommunicatorState>> make_world(std::shared_ptr<Runtime> runtime) {
  std::vector<Rank> members(static_cast<std::size_t>(runtime->world().size));
  std::iota(members.begin(), members.end(), 0);
  const std::vector<int> indices = local_indices(*runtime, members);
  std::unique_ptr<native::Group> native;
  if (!indices.empty()) {
    // The fabric is fresh: its first block is the world's.
    if (runtime->world().rank == 0) {
      UNISONO_ASSIGN(const std::uint32_t block, runtime->fabric()->reserve_block());
      UNISONO_ASSERT(block == 0, "a fresh fabric starts with block 0");
    }
    native = open_native(*runtime, 0, indices);
    if (native == nullptr) {
      return Status(ErrorCode::kOutOfResources, "no shared memory for the first communicator");
    }
  }
  runtime->set_next_communicator_number(2);
  const Rank rank = runtime->world().rank;
  return std::make_shared<CommunicatorState>(std::move(runtime), make_id(1, 0), std::move(members),
                                             rank, std::move(native));
}

}  // namespace unisono::detail
