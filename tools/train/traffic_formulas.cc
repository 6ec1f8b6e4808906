// Each formula is written as the messages it is made of: who sends how many bytes to whom.
#include "tools/train/traffic_formulas.h"

#include <algorithm>

namespace unisono::train::comparison {
namespace {

constexpr std::uint64_t kElementBytes = 4;

/// Ring algorithms cut a block of two of these or more into pieces of about this size.
constexpr std::uint64_t kPieceBytes = std::uint64_t{1} << 20;
constexpr std::uint64_t kPiecesMax = 64;

/// What a group of devices or ranks does, one message at a time.
class Ledger {
 public:
  explicit Ledger(std::size_t members) : reports_(members) {
    for (TrafficReport& report : reports_) report.by_peer.resize(members);
  }

  /// The first `members` make a call.
  void call(Collective collective, std::size_t members) {
    for (std::size_t i = 0; i < members; ++i) ++reports_[i].calls[index_of(collective)];
  }

  /// An empty message is none.
  void message(Collective collective, std::size_t source, std::size_t target,
               std::uint64_t elements, std::uint64_t pieces = 1) {
    if (elements == 0 || source == target) return;
    const std::uint64_t bytes = elements * kElementBytes;
    TrafficReport& from = reports_[source];
    for (Traffic* each : {&from.by_collective[index_of(collective)], &from.by_peer[target]}) {
      each->messages_sent += pieces;
      each->bytes_sent += bytes;
    }
    TrafficReport& to = reports_[target];
    for (Traffic* each : {&to.by_collective[index_of(collective)], &to.by_peer[source]}) {
      each->messages_received += pieces;
      each->bytes_received += bytes;
    }
  }

  std::vector<TrafficReport> take() && { return std::move(reports_); }

 private:
  static std::size_t index_of(Collective collective) {
    return static_cast<std::size_t>(collective);
  }

  std::vector<TrafficReport> reports_;
};

/// The calls of a step on a Ledger. One device has nobody to talk to, and nothing is no call.
class Step {
 public:
  Step(Ledger& ledger, const BatchCut& cut) : ledger_(ledger), cut_(cut) {}

  void broadcast(std::uint64_t elements) {
    const std::size_t members = cut_.chunks.size();
    if (!begins(Collective::kBroadcast, members, elements)) return;
    for (std::size_t i = 1; i < members; ++i) {
      ledger_.message(Collective::kBroadcast, 0, i, elements);
    }
  }

  /// Each device's chunk, `elements` per sample, from device `root`.
  void scatter(std::uint64_t elements, std::size_t root) {
    const std::size_t members = std::max(cut_.chunks.size(), root + 1);
    if (!begins(Collective::kScatterV, members, elements)) return;
    for (std::size_t i = 0; i < cut_.chunks.size(); ++i) {
      ledger_.message(Collective::kScatterV, root, i, cut_.chunks[i] * elements);
    }
  }

  void gather(std::uint64_t elements, std::size_t root) {
    const std::size_t members = std::max(cut_.chunks.size(), root + 1);
    if (!begins(Collective::kGatherV, members, elements)) return;
    for (std::size_t i = 0; i < cut_.chunks.size(); ++i) {
      ledger_.message(Collective::kGatherV, i, root, cut_.chunks[i] * elements);
    }
  }

  void reduce(std::uint64_t elements, std::size_t members, std::size_t root) {
    if (!begins(Collective::kReduce, members, elements)) return;
    for (std::size_t i = 0; i < members; ++i) {
      ledger_.message(Collective::kReduce, i, root, elements);
    }
  }

  /// A scalar for each member from device `root`.
  void scatter_scalars(std::size_t members, std::size_t root) {
    if (!begins(Collective::kScatterV, members, 1)) return;
    for (std::size_t i = 0; i < members; ++i) ledger_.message(Collective::kScatterV, root, i, 1);
  }

 private:
  bool begins(Collective collective, std::size_t members, std::uint64_t elements) {
    if (members < 2 || elements == 0) return false;
    ledger_.call(collective, members);
    return true;
  }

  Ledger& ledger_;
  const BatchCut& cut_;
};

std::uint64_t pieces_of(std::uint64_t block_elements) {
  return std::clamp<std::uint64_t>(block_elements * kElementBytes / kPieceBytes, 1, kPiecesMax);
}

/// A vector cut into one block per rank: block b is [count * b / ranks, count * (b + 1) / ranks).
std::uint64_t block_of(std::uint64_t count, std::uint64_t block, std::uint64_t ranks) {
  const auto begin = [&](std::uint64_t b) { return count / ranks * b + count % ranks * b / ranks; };
  return begin(block + 1) - begin(block);
}

/// N - 1 steps in which every rank sends a block to the next one: `first` - step, counted round.
template <typename Elements>
void ring_phase(Ledger& ledger, Collective collective, std::size_t ranks, std::size_t first,
                const Elements& elements_of) {
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t step = 0; step + 1 < ranks; ++step) {
      const auto [elements, pieces] = elements_of((rank + first + ranks - step) % ranks);
      ledger.message(collective, rank, (rank + 1) % ranks, elements, pieces);
    }
  }
}

struct Block {
  std::uint64_t elements, pieces;
};

void ring_all_reduce(Ledger& ledger, std::uint64_t count, std::size_t ranks) {
  ledger.call(Collective::kAllReduce, ranks);
  const auto block = [&](std::size_t b) {
    return Block{block_of(count, b, ranks), pieces_of(count / ranks)};
  };
  ring_phase(ledger, Collective::kAllReduce, ranks, 0, block);  // reduce-scatter
  ring_phase(ledger, Collective::kAllReduce, ranks, 1, block);  // all-gather of what it made
}

}  // namespace

std::vector<TrafficReport> dp_traffic(const ModelSize& size, const BatchCut& cut) {
  Ledger ledger(cut.devices);
  Step step(ledger, cut);
  step.broadcast(size.parameters);
  step.broadcast(size.buffers);
  step.scatter(size.inputs, 0);
  step.gather(size.outputs, cut.output);
  step.scatter(size.outputs, cut.output);
  step.reduce(size.parameters, cut.chunks.size(), 0);
  return std::move(ledger).take();
}

std::vector<TrafficReport> dp_criterion_traffic(const ModelSize& size, const BatchCut& cut) {
  Ledger ledger(cut.devices);
  Step step(ledger, cut);
  const std::size_t with_output = std::max(cut.chunks.size(), cut.output + 1);
  step.broadcast(size.parameters);
  step.broadcast(size.buffers);
  step.scatter(size.inputs, 0);
  step.scatter(size.targets, 0);
  step.reduce(1, with_output, cut.output);        // losses
  step.scatter_scalars(with_output, cut.output);  // the loss' gradient
  step.reduce(size.parameters, cut.chunks.size(), 0);
  return std::move(ledger).take();
}

std::vector<TrafficReport> ddp_traffic(std::span<const std::uint64_t> buckets, int ranks) {
  const auto members = static_cast<std::size_t>(ranks);
  Ledger ledger(members);
  for (const std::uint64_t count : buckets) ring_all_reduce(ledger, count, members);
  return std::move(ledger).take();
}

std::vector<TrafficReport> zero_traffic(std::uint64_t parameters, int ranks) {
  const auto members = static_cast<std::size_t>(ranks);
  Ledger ledger(members);
  const std::uint64_t slice = (parameters + members - 1) / members;
  const auto block = [&](std::size_t) { return Block{slice, pieces_of(slice)}; };
  for (const Collective phase : {Collective::kReduceScatter, Collective::kAllGather}) {
    ledger.call(phase, members);
    ring_phase(ledger, phase, members, 0, block);
  }
  return std::move(ledger).take();
}

std::uint64_t even_dp_elements(const ModelSize& size, std::uint64_t samples,
                               std::uint64_t devices) {
  const std::uint64_t others = devices - 1;
  const std::uint64_t outputs = samples * size.outputs * others / devices;
  return samples * size.inputs * others / devices + others * (size.parameters + size.buffers) +
         outputs + outputs + others * size.parameters;
}

std::uint64_t even_dp_criterion_elements(const ModelSize& size, std::uint64_t samples,
                                         std::uint64_t devices) {
  const std::uint64_t others = devices - 1;
  return samples * (size.inputs + size.targets) * others / devices +
         others * (size.parameters + size.buffers) + 2 * others + others * size.parameters;
}

std::uint64_t even_ddp_elements(std::uint64_t parameters, std::uint64_t ranks) {
  return 2 * (ranks - 1) * parameters / ranks;
}

OutputMemory output_memory(std::uint64_t outputs_per_sample, std::uint64_t samples) {
  const std::uint64_t bytes = outputs_per_sample * samples * kElementBytes;
  return {bytes, 2 * bytes};
}

}  // namespace unisono::train::comparison
