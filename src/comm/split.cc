#include "comm/split.h"

#include <algorithm>
#include <new>
#include <numeric>

#include "base/collective.h"
#include "base/communicator_id.h"
#include "comm/link_measurement.h"
#include "comm/part.h"
#include "transports/shm/segment_group.h"

namespace unisono::detail {
namespace {

// What the leader of a part reserves to offer it. It goes back if no call of the parent has begun
// since: by such a call others may have heard of it, and who opens a block counts itself in it,
// which must not be another group's by then.
class ReservedBlock {
 public:
  explicit ReservedBlock(CommunicatorState& parent) : parent_(parent) {}
  ~ReservedBlock() {
    if (is_reserved_ && calls_begun() == calls_before_) segment().return_block(number_);
  }
  ReservedBlock(const ReservedBlock&) = delete;

  /// Nothing where all blocks are taken.
  void reserve_for(Offer* offer) {
    calls_before_ = calls_begun();
    const Result<std::uint32_t> number = segment().reserve_block();
    if (!number) return;
    is_reserved_ = true;
    offer->block = number_ = *number;
    offer->has_block = 1;
  }

 private:
  shm::SharedSegment& segment() const { return *parent_.runtime().shared_segment(); }
  std::uint64_t calls_begun() const {
    const Engine::Lock lock(parent_.runtime().engine());
    return parent_.host().calls().next();
  }

  CommunicatorState& parent_;
  bool is_reserved_ = false;
  std::uint32_t number_ = 0;
  std::uint64_t calls_before_ = 0;
};

template <typename T>
Result<std::vector<T>> share(CommunicatorState& parent, const T& mine) {
  std::vector<T> all(static_cast<std::size_t>(parent.size()));
  UNISONO_TRY(parent
                  .run({.collective = Collective::kAllGather,
                        .in = &mine,
                        .out = all.data(),
                        .count = sizeof(T),
                        .type = DataType::kUint8,
                        .options = {.algorithm = kAutomaticAlgorithm}})
                  .status);
  return all;
}

// The segment's indices of these world ranks, ascending as the ranks; empty when one is elsewhere.
std::vector<int> local_indices(Runtime& runtime, const std::vector<Rank>& members) {
  std::vector<int> indices;
  if (runtime.shared_segment() == nullptr) return indices;
  for (const Rank member : members) {
    const int index = runtime.shared_segment()->local_index(member);
    if (index < 0) return {};
    indices.push_back(index);
  }
  return indices;
}

// Of these world ranks.
std::unique_ptr<native::Group> make_native(std::unique_ptr<shm::SegmentGroup> group,
                                           const Runtime& runtime,
                                           const std::vector<Rank>& members) {
  if (group == nullptr) return nullptr;
  return std::make_unique<native::Group>(
      std::move(group), native::levels_of(runtime.places(members), runtime.config().levels));
}

// How far it is with what all members of the parent do together.
struct Progress {
  std::uint32_t part = 0;  // its id; 0: it has none yet
  bool is_over = false;    // they wait for this rank no more
};

// Shared memory for the parent's `ranks`, which form this rank's part and are these world ranks:
// all have it, or none. Collective over the parent.
Result<std::unique_ptr<native::Group>> open_native(CommunicatorState& parent,
                                                   const std::vector<Rank>& ranks,
                                                   const std::vector<Rank>& members,
                                                   const std::vector<int>& indices,
                                                   const Offer& agreed, Progress* progress) {
  shm::SharedSegment* const segment = parent.runtime().shared_segment();
  std::unique_ptr<shm::SegmentGroup> group;
  if (agreed.has_block != 0 && !indices.empty()) {
    Result<std::unique_ptr<shm::SegmentGroup>> made = segment->open_group(agreed.block, indices);
    if (made) group = std::move(*made);
  }
  // If this fails, nobody knows who has opened the block: it is free again if all that live have.
  const Result<std::vector<std::uint8_t>> told =
      share(parent, static_cast<std::uint8_t>(group != nullptr));
  progress->is_over = true;
  if (!told) {
    if (group != nullptr) group->note_failure();
    return told.error();
  }
  const std::vector<std::uint8_t>& opened = *told;
  const auto count =
      static_cast<std::size_t>(std::count_if(ranks.begin(), ranks.end(), [&](Rank rank) {
        return opened[static_cast<std::size_t>(rank)] != 0;
      }));
  if (count == ranks.size()) return make_native(std::move(group), parent.runtime(), members);
  // The block goes back: by those that could open it, or by the one who offered it.
  if (group != nullptr) {
    group->set_opened_by(count);
  } else if (count == 0 && agreed.has_block != 0 && ranks.front() == parent.rank()) {
    segment->return_block(agreed.block);
  }
  return std::unique_ptr<native::Group>();
}

std::vector<Rank> all_ranks(const Runtime& runtime) {
  std::vector<Rank> ranks(static_cast<std::size_t>(runtime.world().size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

std::shared_ptr<CommunicatorState> make_enlisted(std::shared_ptr<Runtime> runtime, std::uint32_t id,
                                                 std::vector<Rank> members, Rank rank,
                                                 std::unique_ptr<native::Group> native) {
  Engine& engine = runtime->engine();
  auto made = std::make_shared<CommunicatorState>(std::move(runtime), id, std::move(members), rank,
                                                  std::move(native));
  const Engine::Lock lock(engine);
  made->enlist();
  return made;
}

std::uint32_t take_communicator_id(Runtime& runtime) {
  return communicator_id(runtime.take_communicator_number(), runtime.world().rank,
                         runtime.world().size);
}

namespace {

// Its other members hear that this rank will not come.
void fail_part(CommunicatorState& parent, std::uint32_t id, const Status& cause) {
  const Engine::Lock lock(parent.runtime().engine());
  try {
    parent.fail_part(id, cause);
  } catch (const std::bad_alloc&) {
    parent.runtime().news().no_memory(kEveryCommunicator);
  }
}

Result<std::shared_ptr<CommunicatorState>> make_part(CommunicatorState& parent, const Part& part,
                                                     const std::vector<Rank>& members,
                                                     const std::vector<int>& indices,
                                                     const Offer& agreed, Progress* progress) {
  const std::vector<Rank>& ranks = part.ranks();
  auto native = open_native(parent, ranks, members, indices, agreed, progress);
  if (!native) {
    fail_part(parent, agreed.id, native.error());
    return native.error();
  }
  UNISONO_TRY(part.agreed_on());
  if (ranks.empty()) return std::shared_ptr<CommunicatorState>();
  if (agreed.id == 0) {
    return Status(ErrorCode::kOutOfResources,
                  "rank " + std::to_string(ranks.front()) + " has made as many communicators as " +
                      "can be told apart in one job; start the job anew",
                  ranks.front());
  }
  return make_enlisted(parent.shared_runtime(), agreed.id, members, part.place(),
                       *std::move(native));
}

Result<std::shared_ptr<CommunicatorState>> split_with_others(CommunicatorState& parent, int color,
                                                             int key,
                                                             std::span<const Rank> expected,
                                                             Progress* progress) {
  Runtime& runtime = parent.runtime();
  {
    const Engine::Lock lock(runtime.engine());
    parent.host().note_split();
  }
  UNISONO_ASSIGN(const std::vector<Vote> votes, share(parent, make_vote(color, key, expected)));
  const Part part(votes, parent.rank());
  std::vector<Rank> members;
  for (const Rank r : part.ranks()) members.push_back(parent.members().world_rank(r));
  const std::vector<int> indices = local_indices(runtime, members);

  Offer offer;
  if (part.leads()) offer.id = take_communicator_id(runtime);
  ReservedBlock block(parent);
  if (part.leads() && !indices.empty()) block.reserve_for(&offer);
  UNISONO_ASSIGN(const std::vector<Offer> offers, share(parent, offer));
  const Offer agreed = part.agreed(offers);
  progress->part = agreed.id;
  return make_part(parent, part, members, indices, agreed, progress);
}

}  // namespace

Result<std::shared_ptr<CommunicatorState>> split(CommunicatorState& parent, int color, int key,
                                                 std::span<const Rank> expected) {
  Progress progress;
  try {
    return split_with_others(parent, color, key, expected, &progress);
  } catch (const std::bad_alloc&) {
    if (!progress.is_over && parent.size() > 1) {
      const Engine::Lock lock(parent.runtime().engine());
      parent.fail_without_memory();
    }
    fail_part(parent, progress.part, {ErrorCode::kOutOfResources, "no memory", parent.rank()});
    throw;
  }
}

Result<std::shared_ptr<CommunicatorState>> make_world(std::shared_ptr<Runtime> runtime) {
  std::vector<Rank> members = all_ranks(*runtime);
  const std::vector<int> indices = local_indices(*runtime, members);
  std::unique_ptr<native::Group> native;
  if (!indices.empty()) {
    // The segment is fresh: its first block is the world's.
    if (runtime->world().rank == 0) {
      UNISONO_ASSIGN(const std::uint32_t block, runtime->shared_segment()->reserve_block());
      if (block != 0) return Status(ErrorCode::kProtocol, "a rank has taken the first block");
    }
    UNISONO_ASSIGN(std::unique_ptr<shm::SegmentGroup> group,
                   runtime->shared_segment()->open_group(0, indices));
    native = make_native(std::move(group), *runtime, members);
  }
  const Rank rank = runtime->world().rank;
  return make_enlisted(std::move(runtime), kWorldId, std::move(members), rank, std::move(native));
}

Status learn_links(const std::shared_ptr<Runtime>& runtime, TimePoint deadline) {
  const std::vector<Rank> hosts = first_of_hosts(runtime->world().members);
  if (!runtime->config().measure || hosts.size() < 2) return Status();
  // No communicator that is made later has this id: it would be rank 1's without a number.
  constexpr std::uint32_t kMeasuringId = 1;
  const std::shared_ptr<CommunicatorState> all =
      make_enlisted(runtime, kMeasuringId, all_ranks(*runtime), runtime->world().rank, nullptr);
  const Result<algorithms::LinkFacts> links = measure_links(*all, hosts, deadline);
  if (!links) {
    const Status& why = links.error();
    return Status(why.code(),
                  why.message() +
                      " (while the links between the hosts were measured, which "
                      "UNISONO_MEASURE=off leaves)",
                  why.rank());
  }
  all->close();
  runtime->learn_links(*links);
  return Status();
}

}  // namespace unisono::detail
