// Which options mean something together. Everything here is refused before anything starts.
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "tools/common/invalid.h"
#include "tools/train/options.h"
#include "unisono/train/scatter_chunks.h"

namespace unisono::train {
namespace {

std::string list(const std::vector<int>& devices) {
  return fmt::format("{}", fmt::join(devices, ","));
}

Status check_devices(const Options& options, std::vector<std::string>* notes) {
  if (!is_in_process(options.strategy)) return {};
  if (options.ranks > 1) {
    return tools::invalid(
        "--strategy {} is one process, and the launcher started {}; start it without a launcher",
        name_of(options.strategy), options.ranks);
  }
  if (options.strategy == StrategyKind::kSingle && options.devices.size() > 1) {
    return tools::invalid("--strategy single is one rank, not {}; take ddp for more",
                          options.devices.size());
  }
  for (const int device : options.devices) {
    if (std::ranges::count(options.devices, device) > 1) {
      return tools::invalid("--devices {}: {} is there twice", list(options.devices), device);
    }
  }
  if (options.output_device && std::ranges::count(options.devices, *options.output_device) == 0) {
    return tools::invalid("--output-device {} is not one of the devices {}", *options.output_device,
                          list(options.devices));
  }
  if (options.strategy != StrategyKind::kDpBalanced) return {};
  if (*options.first_batch == 0 && options.model == ModelKind::kCnn) {
    return tools::invalid(
        "--gpu0-batch 0: the batch norms of --model cnn are tested and saved with the running "
        "statistics of the first device, which would never move; give it 1 or more");
  }
  BalancedCheck balanced =
      check_balanced(options.pass_samples(), *options.first_batch, options.devices.size());
  if (!balanced.refusal.empty()) return tools::invalid("--gpu0-batch: {}", balanced.refusal);
  for (const std::string& note : balanced.notes) notes->push_back("dp-balanced: " + note);
  return {};
}

Status check_batch(const Options& options) {
  const auto ranks = static_cast<std::size_t>(options.ranks);
  if (options.bitwise) {
    if (!std::has_single_bit(ranks) || ranks > kMicroBatches) {
      return tools::invalid("--bitwise deals {} micro-batches to 1, 2, 4 or 8 ranks, not {}",
                            kMicroBatches, ranks);
    }
    if (options.batch % kMicroBatches != 0) {
      return tools::invalid("--batch {} does not divide into the {} micro-batches of --bitwise",
                            options.batch, kMicroBatches);
    }
    return {};
  }
  const std::size_t parts = ranks * options.accumulate;
  if (options.batch % parts != 0) {
    const std::size_t below = options.batch / parts * parts;
    std::string into = ranks > 1 ? fmt::format("{} ranks", ranks) : "";
    if (options.accumulate > 1) {
      into += fmt::format("{}{} passes", into.empty() ? "" : " times ", options.accumulate);
    }
    return tools::invalid("--batch {} does not divide into {} of equal size; take {}",
                          options.batch, into, below > 0 ? below : parts);
  }
  return {};
}

Status check_exclusions(const Options& options) {
  if (options.sort_batches && options.load == LoadMode::kLazy) {
    return tools::invalid(
        "--sort-batches needs the length of every sample before the first batch, and --load lazy "
        "has read none by then; take --load gather or local");
  }
  if (options.sync_bn && options.model != ModelKind::kCnn) {
    return tools::invalid("--sync-bn: --model {} has no batch norm; cnn has",
                          name_of(options.model));
  }
  if (options.sync_bn && is_in_process(options.strategy)) {
    return tools::invalid(
        "--sync-bn exchanges statistics between ranks; --strategy {} has one rank; take ddp or "
        "zero1",
        name_of(options.strategy));
  }
  if (options.elastic &&
      (options.strategy != StrategyKind::kDdp || options.device != ComputeDevice::kCpu)) {
    return tools::invalid(
        "--elastic is for --strategy ddp on --device cpu, whose ranks all hold the whole state; "
        "this is {} on {}",
        name_of(options.strategy), options.device == ComputeDevice::kCpu ? "cpu" : "cuda");
  }
  if (options.elastic && options.sort_batches) {
    return tools::invalid(
        "--elastic excludes --sort-batches: for another number of ranks the samples have another "
        "order, in which the place in the epoch means nothing");
  }
  if (!options.bitwise) return {};
  const auto excludes = [](bool is_given, const char* name, const char* why) -> Status {
    if (!is_given) return {};
    return tools::invalid("--bitwise excludes {}: {}", name, why);
  };
  UNISONO_TRY(excludes(options.elastic, "--elastic", "its ranks are 1, 2, 4 or 8"));
  UNISONO_TRY(excludes(options.sync_bn, "--sync-bn", "its statistics are those of a micro-batch"));
  UNISONO_TRY(excludes(options.sort_batches, "--sort-batches", "it has its own order of samples"));
  UNISONO_TRY(excludes(options.accumulate > 1, "--accumulate", "its micro-batches are the passes"));
  UNISONO_TRY(excludes(options.compression != Compression::kNone, "--compress",
                       "it sums in 32 bits, in one order"));
  UNISONO_TRY(excludes(options.find_unused, "--find-unused", "it has no buckets"));
  return excludes(!options.overlap, "--no-overlap", "it has no buckets");
}

}  // namespace

Status check_comparison(const std::vector<std::string>& given) {
  if (given.empty()) return {};
  return tools::invalid(
      "{} {} no meaning with --compare, which takes some steps of every strategy and writes no "
      "files; leave {} away",
      fmt::join(given, ", "), given.size() == 1 ? "has" : "have",
      given.size() == 1 ? "it" : "them");
}

Status check_combination(const Options& options, std::vector<std::string>* notes) {
  UNISONO_TRY(check_exclusions(options));
  UNISONO_TRY(check_batch(options));
  return check_devices(options, notes);
}

}  // namespace unisono::train
