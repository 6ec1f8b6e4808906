// What `unisono train` was asked to do. Parsed and checked once, then an immutable value.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "unisono/train/checkpointing.h"
#include "unisono/train/loader.h"
#include "unisono/train/schedule.h"

namespace unisono::train {

enum class StrategyKind : std::uint8_t {
  kSingle,
  kDp,
  kDpBalanced,
  kDpCriterion,
  kDdp,
  kZero1,
};
enum class ModelKind : std::uint8_t { kMlp, kCnn, kGpt };
enum class OptimizerKind : std::uint8_t { kSgd, kAdamW };
enum class Compression : std::uint8_t { kNone, kFp16, kBf16 };
enum class ComputeDevice : std::uint8_t { kCpu, kCuda };
enum class PinMemory : std::uint8_t { kAuto, kOn, kOff };

std::string_view name_of(StrategyKind kind);
std::string_view name_of(ModelKind kind);
std::string_view name_of(OptimizerKind kind);
std::string_view name_of(RateScaling scaling);

/// One process whose devices are threads: the ranks of these strategies are devices.
bool is_in_process(StrategyKind kind);

/// Micro-batches of a step with --bitwise, whatever the number of ranks.
inline constexpr std::size_t kMicroBatches = 8;
/// The global batch that --lr holds for.
inline constexpr std::size_t kBaseBatch = 128;
/// Of a comparison whose model is its own choice: on two cores it takes seconds, dp is faster than
/// one device, and ddp faster than dp.
inline constexpr std::size_t kComparedBatch = 64;

struct Options {
  StrategyKind strategy = StrategyKind::kDdp;
  ModelKind model = ModelKind::kMlp;
  int ranks = 1;             ///< of the job; 1 with the strategies of one process
  std::vector<int> devices;  ///< the strategies of one process
  std::optional<int> output_device;
  std::optional<std::size_t> first_batch;  ///< --gpu0-batch
  ComputeDevice device = ComputeDevice::kCpu;
  /// GPUs by local rank or by device, repeated where there are fewer; empty: by number.
  std::vector<int> device_map;
  PinMemory pin_memory = PinMemory::kAuto;
  std::string transport;

  std::string data;  ///< empty: the model's default
  LoadMode load = LoadMode::kGather;
  int workers = 0;
  bool sort_batches = false;

  std::size_t epochs = 5;
  std::size_t batch = kBaseBatch;  ///< over all ranks and accumulated passes
  std::size_t cut_from = 0;  ///< the default batch, where it was made to divide; 0: it was not
  bool is_workload_default = false;  ///< --compare chose the model
  std::size_t accumulate = 1;
  std::size_t limit_steps = 0;  ///< of each epoch; 0: all
  float rate = 7e-4F;
  RateScaling scaling = RateScaling::kNone;
  std::size_t warm_up = 0;
  OptimizerKind optimizer = OptimizerKind::kAdamW;
  float momentum = 0.9F, weight_decay = 0.0F;
  bool sync_bn = false;
  Checkpointing checkpointing = Checkpointing::kNone;
  Compression compression = Compression::kNone;
  bool overlap = true;
  std::size_t bucket_bytes = 25U << 20;
  bool find_unused = false, bitwise = false, canonical = false;
  std::uint64_t seed = 1;
  bool seed_given = false;

  std::string checkpoint;
  std::size_t checkpoint_every = 0;  ///< steps; 0: at the end of each epoch
  std::string resume;
  std::string output = "unisono-train";
  bool elastic = false;
  bool goes_on = false;  ///< in the log of a training before
  bool json = false, quiet = false, compare = false;
  /// Columns of the terminal that the command was started on; 0: none.
  int screen = 0;
  bool is_checked = false;  ///< by the process that started this rank
  /// What there is to say of the options: for the user, once.
  std::vector<std::string> notes;

  /// Samples that one rank computes in one pass, and passes of one rank in one step.
  std::size_t pass_samples() const;
  std::size_t passes() const;
};

/// Behind a batch that was cut; else "".
std::string cut_text(const Options& options);

/// Where should_run is false (--help, a wrong argument) the text is printed already and
/// exit_status is what to end with.
struct Parsed {
  bool should_run = false;
  int exit_status = 0;
  Options options;
};
/// `launched_ranks`: of the launcher this process runs under; 0: none. argv[0] is the name of the
/// command, as main() has it.
Parsed parse_options(int argc, char** argv, int launched_ranks);

/// Refuses options of a training, by the names they were given by, with --compare.
Status check_comparison(const std::vector<std::string>& given);
/// Whether the options mean something together. What is told besides (a fall back to even chunks)
/// is appended to `notes`.
Status check_combination(const Options& options, std::vector<std::string>* notes);

}  // namespace unisono::train
