#include "cuda/collectives/pieces.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace unisono::device {
namespace {

using cuda::DeviceWork;
using cuda::PieceMode;
using cuda::WorkPiece;

// Slices begin at whole cache lines of the device.
constexpr std::size_t kSliceBytes = 128;

// Up to this many bytes of all inputs together, reading more often costs less than writing to other
// devices. Not measured on a GPU.
constexpr std::size_t kOneShotBytesMax = std::size_t{256} << 10;

struct Range {
  std::size_t first = 0;
  std::size_t count = 0;
};

// The `index`-th of `parts` nearly equal ranges of `count` elements.
Range slice_of(std::size_t count, std::size_t element_bytes, std::size_t index, std::size_t parts) {
  const std::size_t unit = std::max<std::size_t>(kSliceBytes / element_bytes, 1);
  const std::size_t units = (count + unit - 1) / unit;
  const auto begin_of = [&](std::size_t part) {
    return std::min(count, (units / parts * part + std::min(part, units % parts)) * unit);
  };
  return {begin_of(index), begin_of(index + 1) - begin_of(index)};
}

// Collects one owner's pieces into as few launches as hold them.
class Packer {
 public:
  Packer(const CollectiveParts& parts, Rank owner) : parts_(parts), owner_(owner) {}

  std::vector<DeviceWork> take() { return std::move(launches_); }

  std::size_t ranks() const { return parts_.ranks.size(); }
  const RankPart& rank(std::size_t index) const { return parts_.ranks[index]; }
  std::byte* input(std::size_t rank, std::size_t element) const {
    return at(parts_.ranks[rank].input, element);
  }
  std::byte* output(std::size_t rank, std::size_t element) const {
    return at(parts_.ranks[rank].output, element);
  }

  /// Whether the `index`-th block is this owner's: owners take whole blocks in turn.
  bool owns(std::size_t index) const {
    return parts_.owners[index % parts_.owners.size()] == owner_;
  }
  /// This owner's share of `count` elements.
  Range share(std::size_t count) const {
    const auto found = std::find(parts_.owners.begin(), parts_.owners.end(), owner_);
    if (found == parts_.owners.end()) return {};
    return slice_of(count, parts_.element_bytes,
                    static_cast<std::size_t>(found - parts_.owners.begin()), parts_.owners.size());
  }

  void add(PieceMode mode, std::size_t count, std::span<std::byte* const> inputs,
           std::span<std::byte* const> outputs) {
    if (count == 0) return;
    const std::size_t pointers = inputs.size() + outputs.size();
    if (launches_.empty() || launches_.back().piece_count == cuda::kWorkPiecesMax ||
        used_ + pointers > cuda::kWorkPointersMax) {
      launches_.emplace_back().ranks = static_cast<std::int32_t>(ranks());
      used_ = 0;
    }
    DeviceWork& work = launches_.back();
    WorkPiece& piece = work.pieces[work.piece_count++];
    piece.mode = mode;
    piece.count = count;
    piece.first_input = put(inputs, &work);
    piece.inputs = static_cast<std::uint16_t>(inputs.size());
    piece.first_output = put(outputs, &work);
    piece.outputs = static_cast<std::uint16_t>(outputs.size());
  }

  void copy(std::byte* from, std::byte* to, std::size_t count) {
    if (from != to) add(PieceMode::kSpread, count, {&from, 1}, {&to, 1});
  }

 private:
  std::byte* at(std::byte* buffer, std::size_t element) const {
    return buffer == nullptr ? nullptr : buffer + element * parts_.element_bytes;
  }
  std::uint16_t put(std::span<std::byte* const> buffers, DeviceWork* work) {
    const std::size_t first = used_;
    for (std::byte* buffer : buffers) work->pointers[used_++] = buffer;
    return static_cast<std::uint16_t>(first);
  }

  const CollectiveParts& parts_;
  const Rank owner_;
  std::vector<DeviceWork> launches_;
  std::size_t used_ = 0;  // pointers of the last launch
};

using Pointers = std::vector<std::byte*>;

Pointers inputs_at(const Packer& packer, std::size_t element) {
  Pointers pointers;
  for (std::size_t r = 0; r < packer.ranks(); ++r) pointers.push_back(packer.input(r, element));
  return pointers;
}

Pointers outputs_at(const Packer& packer, std::size_t element) {
  Pointers pointers;
  for (std::size_t r = 0; r < packer.ranks(); ++r) pointers.push_back(packer.output(r, element));
  return pointers;
}

// Every element of the result depends on the same element of all inputs.
void add_reduction(const CollectiveParts& parts, PieceMode mode, Packer* packer) {
  const Range range = packer->share(parts.count);
  const Pointers inputs = inputs_at(*packer, range.first);
  if (parts.collective == Collective::kReduce) {
    std::byte* const out = packer->output(static_cast<std::size_t>(parts.root), range.first);
    packer->add(mode, range.count, inputs, {&out, 1});
  } else {
    packer->add(mode, range.count, inputs, outputs_at(*packer, range.first));
  }
}

// In place a rank would write over what others have yet to read. All ranks see the same.
bool is_one_shot(const CollectiveParts& parts) {
  const bool each_has_its_own = parts.owners.size() == parts.ranks.size() && parts.ranks.size() > 1;
  return each_has_its_own &&
         parts.count * parts.element_bytes * parts.ranks.size() <= kOneShotBytesMax &&
         std::none_of(parts.ranks.begin(), parts.ranks.end(),
                      [](const RankPart& part) { return part.input == part.output; });
}

// The owner's result alone, of everything.
void add_one_shot(const CollectiveParts& parts, Rank owner, Packer* packer) {
  std::byte* const out = packer->output(static_cast<std::size_t>(owner), 0);
  packer->add(PieceMode::kSpread, parts.count, inputs_at(*packer, 0), {&out, 1});
}

void add_broadcast(const CollectiveParts& parts, Packer* packer) {
  const Range range = packer->share(parts.count);
  std::byte* const in = packer->input(static_cast<std::size_t>(parts.root), range.first);
  Pointers outputs = outputs_at(*packer, range.first);
  std::erase(outputs, in);
  if (!outputs.empty()) packer->add(PieceMode::kSpread, range.count, {&in, 1}, outputs);
}

// Where block `block` of a rank's buffer begins and how long it is.
Range block_of(std::span<const std::uint64_t> counts, std::span<const std::uint64_t> displacements,
               std::size_t block, std::size_t count) {
  if (counts.empty()) return {block * count, count};
  return {displacements[block], counts[block]};
}

void add_reduce_scatter(const CollectiveParts& parts, Packer* packer) {
  for (std::size_t target = 0; target < packer->ranks(); ++target) {
    if (!packer->owns(target)) continue;
    Pointers inputs;
    std::size_t count = 0;
    for (std::size_t source = 0; source < packer->ranks(); ++source) {
      const RankPart& part = packer->rank(source);
      const Range block =
          block_of(part.input_counts, part.input_displacements, target, parts.count);
      count = block.count;
      inputs.push_back(packer->input(source, block.first));
    }
    std::byte* const out = packer->output(target, 0);
    packer->add(PieceMode::kSpread, count, inputs, {&out, 1});
  }
}

void add_all_gather(const CollectiveParts& parts, Packer* packer) {
  for (std::size_t source = 0; source < packer->ranks(); ++source) {
    if (!packer->owns(source)) continue;
    std::byte* const in = packer->input(source, 0);
    Pointers outputs;
    std::size_t count = 0;
    for (std::size_t target = 0; target < packer->ranks(); ++target) {
      const RankPart& part = packer->rank(target);
      const Range block =
          block_of(part.output_counts, part.output_displacements, source, parts.count);
      count = block.count;
      std::byte* const out = packer->output(target, block.first);
      if (out != in) outputs.push_back(out);
    }
    if (!outputs.empty()) packer->add(PieceMode::kSpread, count, {&in, 1}, outputs);
  }
}

void add_gather(const CollectiveParts& parts, Packer* packer) {
  const auto root = static_cast<std::size_t>(parts.root);
  const RankPart& part = packer->rank(root);
  for (std::size_t source = 0; source < packer->ranks(); ++source) {
    if (!packer->owns(source)) continue;
    const Range block =
        block_of(part.output_counts, part.output_displacements, source, parts.count);
    packer->copy(packer->input(source, 0), packer->output(root, block.first), block.count);
  }
}

void add_scatter(const CollectiveParts& parts, Packer* packer) {
  const auto root = static_cast<std::size_t>(parts.root);
  const RankPart& part = packer->rank(root);
  for (std::size_t target = 0; target < packer->ranks(); ++target) {
    if (!packer->owns(target)) continue;
    const Range block = block_of(part.input_counts, part.input_displacements, target, parts.count);
    packer->copy(packer->input(root, block.first), packer->output(target, 0), block.count);
  }
}

// In place two ranks' blocks change places: both are read before either is written.
void add_all_to_all(const CollectiveParts& parts, Packer* packer) {
  for (std::size_t a = 0; a < packer->ranks(); ++a) {
    for (std::size_t b = a; b < packer->ranks(); ++b) {
      if (!packer->owns(a + b)) continue;
      const Pointers inputs{packer->input(a, b * parts.count), packer->input(b, a * parts.count)};
      const Pointers outputs{packer->output(b, a * parts.count),
                             packer->output(a, b * parts.count)};
      if (a == b) {
        packer->copy(inputs[0], outputs[0], parts.count);
      } else {
        packer->add(PieceMode::kPermute, parts.count, inputs, outputs);
      }
    }
  }
}

void add_all_to_all_v(const CollectiveParts&, Packer* packer) {
  for (std::size_t source = 0; source < packer->ranks(); ++source) {
    for (std::size_t target = 0; target < packer->ranks(); ++target) {
      if (!packer->owns(target)) continue;
      const RankPart& from = packer->rank(source);
      const RankPart& to = packer->rank(target);
      packer->copy(packer->input(source, from.input_displacements[target]),
                   packer->output(target, to.output_displacements[source]),
                   from.input_counts[target]);
    }
  }
}

}  // namespace

std::vector<DeviceWork> pieces_of(const CollectiveParts& parts, Rank owner) {
  UNISONO_ASSERT(
      !parts.owners.empty() && parts.ranks.size() <= static_cast<std::size_t>(cuda::kWorkRanksMax),
      "more ranks than one kernel takes, or nobody to launch it");
  Packer packer(parts, owner);
  switch (parts.collective) {
    case Collective::kAllReduce:
      if (is_one_shot(parts)) {
        add_one_shot(parts, owner, &packer);
        break;
      }
      [[fallthrough]];
    case Collective::kReduce:
      add_reduction(parts, PieceMode::kSpread, &packer);
      break;
    case Collective::kScan:
      add_reduction(parts, PieceMode::kPrefix, &packer);
      break;
    case Collective::kExscan:
      add_reduction(parts, PieceMode::kExclusive, &packer);
      break;
    case Collective::kBroadcast:
      add_broadcast(parts, &packer);
      break;
    case Collective::kReduceScatter:
    case Collective::kReduceScatterV:
      add_reduce_scatter(parts, &packer);
      break;
    case Collective::kAllGather:
    case Collective::kAllGatherV:
      add_all_gather(parts, &packer);
      break;
    case Collective::kGather:
    case Collective::kGatherV:
      add_gather(parts, &packer);
      break;
    case Collective::kScatter:
    case Collective::kScatterV:
      add_scatter(parts, &packer);
      break;
    case Collective::kAllToAll:
      add_all_to_all(parts, &packer);
      break;
    case Collective::kAllToAllV:
      add_all_to_all_v(parts, &packer);
      break;
    case Collective::kBarrier:
    case Collective::kSend:
    case Collective::kReceive:
      break;
  }
  return packer.take();
}

}  // namespace unisono::device
