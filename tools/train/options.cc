// The command line: what each option is called and which words it takes. What options mean
// together is in combinations.cc.
#include "tools/train/options.h"

#include <fmt/format.h>
#include <sched.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>

#include "config/config.h"
#include "tools/common/command_line.h"
#include "tools/common/invalid.h"
#include "tools/common/sizes.h"

namespace unisono::train {
namespace {

constexpr int kRanksMax = 1024, kDevicesMax = 256, kWorkersMax = 64;
constexpr std::size_t kEpochsMax = 100000, kBatchMax = std::size_t{1} << 24;
constexpr std::uint64_t kStepsMax = std::uint64_t{1} << 40;
constexpr double kRateMax = 1e6, kRateMin = std::numeric_limits<float>::min();

const std::map<std::string, StrategyKind> kStrategies{
    {"single", StrategyKind::kSingle},
    {"dp", StrategyKind::kDp},
    {"dp-balanced", StrategyKind::kDpBalanced},
    {"dp-criterion", StrategyKind::kDpCriterion},
    {"ddp", StrategyKind::kDdp},
    {"zero1", StrategyKind::kZero1},
};
const std::map<std::string, ModelKind> kModels{
    {"mlp", ModelKind::kMlp}, {"cnn", ModelKind::kCnn}, {"gpt", ModelKind::kGpt}};
const std::map<std::string, OptimizerKind> kOptimizers{{"sgd", OptimizerKind::kSgd},
                                                       {"adamw", OptimizerKind::kAdamW}};
const std::map<std::string, LoadMode> kLoadModes{
    {"gather", LoadMode::kGather}, {"local", LoadMode::kLocal}, {"lazy", LoadMode::kLazy}};
const std::map<std::string, RateScaling> kScalings{{"none", RateScaling::kNone},
                                                   {"linear", RateScaling::kLinear},
                                                   {"sqrt", RateScaling::kSquareRoot}};
const std::map<std::string, Checkpointing> kCheckpointings{
    {"none", Checkpointing::kNone}, {"sqrt", Checkpointing::kSqrt}, {"poor", Checkpointing::kPoor}};
const std::map<std::string, Compression> kCompressions{
    {"none", Compression::kNone}, {"fp16", Compression::kFp16}, {"bf16", Compression::kBf16}};

const std::map<std::string, ComputeDevice> kComputeDevices{{"cpu", ComputeDevice::kCpu},
                                                           {"cuda", ComputeDevice::kCuda}};
const std::map<std::string, PinMemory> kPinMemories{
    {"auto", PinMemory::kAuto}, {"on", PinMemory::kOn}, {"off", PinMemory::kOff}};

constexpr const char* kDescription =
    "Trains a model on several ranks and shows what it costs.\n"
    "Without arguments: a perceptron on Fashion-MNIST, two local ranks, a few seconds\non "
    "two cores.";

constexpr const char* kFooter = R"(
Strategies. The same samples make up a step in all of them, so that they can be compared.
  single        one rank, the plain model
  dp            one process; a thread is a device. Every step: model to all devices, batch
                scattered, outputs gathered on one device, loss there, gradients to device 0
  dp-balanced   the same, and device 0, which holds more, computes --gpu0-batch samples
  dp-criterion  the same, and the loss is computed where the outputs are; only scalars move
  ddp           one process per rank; gradients are averaged in buckets during the backward pass
  zero1         one process per rank; each rank keeps and updates its part of the optimizer's state

Examples:
  unisono train                                the default: mlp, ddp, two local ranks
  unisono train --model cnn -n 4               a convolutional network with batch norm on 4 ranks
  unisono train --model cnn --sync-bn          statistics of the whole batch, not of a rank's share
  unisono train --strategy dp-balanced --devices 0,1,2 --gpu0-batch 16 --batch 52
  unisono train --model gpt --epochs 5         characters of the licence texts
  unisono train --model gpt --data book.txt --sort-batches
  unisono train --data ~/mnist                 any folder of four IDX files
  unisono train --accumulate 4 --batch 512     four passes a step, one exchange of gradients
  unisono train --checkpoint a.ckpt --epochs 2 && unisono train --resume a.ckpt --epochs 4
  unisono train --resume a.ckpt --strategy zero1 -n 4      another strategy, more ranks
  unisono train --compare -n 3                 what each strategy moves, beside the theory
  unisono train --bitwise -n 8                 every bit as on 1, 2 or 4 ranks
  unisono run -n 8 -- unisono train            under a launcher (torchrun works as well)
  unisono train --device cuda -n 4             on GPUs: local rank r takes cuda:r
  unisono train --device cuda -n 4 --device-map 0    ... four ranks share the first GPU

Batch and rate. --batch is the batch of a step over all ranks: more ranks make each rank's share
smaller and leave the result alone. --lr holds for a batch of 128; for a larger one say --scale-lr
linear (SGD) or sqrt (AdamW), and --warm-up.

Results go to the folder --output: log.jsonl (a line per epoch) and, drawn by gnuplot, curve.svg
and curve.png (loss and accuracy), communication.svg and communication.png (bytes per step, by
collective and rank), with curve-loss.dat, curve-epochs.dat, communication.dat, curve.gp and
communication.gp to draw them again. A fresh run overwrites the files of the one before; --resume
goes on in its log and its curves.
The exit status is 1 when training failed, 2 for a wrong command line.
)";

/// What fill() turns into values.
struct Texts {
  std::string ranks, devices, device_map, bucket = "25M";
  std::string gpu0_batch, output_device, epochs, rate;
  bool no_overlap = false;
};

// What the value is called, instead of the type and limits that CLI11 would tell.
void show(CLI::Option* option, const std::string& name) {
  option->type_name(name)->option_text(name);
}

template <typename T>
void add_number(CLI::App& app, const char* name, T& value, std::type_identity_t<T> min,
                std::type_identity_t<T> max, const char* shown, const std::string& help) {
  CLI::Option* const option = app.add_option(name, value, help);
  show(option->check(CLI::Range(min, max))->check(tools::refuse_nan), shown);
}

template <typename T>
CLI::Option* add_choice(CLI::App& app, const char* name, T& value,
                        const std::map<std::string, T>& choices, const std::string& help) {
  std::string words;
  for (const auto& [word, ignored] : choices) words += (words.empty() ? "" : "|") + word;
  return app
      .add_option_function<std::string>(
          name, [&value, &choices](const std::string& word) { value = choices.at(word); }, help)
      ->check(CLI::IsMember(&choices))
      ->type_name(words)
      ->option_text(words);
}

// All but loopback, which is between threads of one process.
std::vector<std::string> transports_of_processes() {
  std::vector<std::string> names;
  for (const std::string_view name : kTransports) {
    if (name != "loopback") names.emplace_back(name);
  }
  return names;
}

void declare_what(CLI::App& app, Texts& texts, Options& options) {
  app.add_option("-n,--ranks", texts.ranks,
                 "Ranks to start here, or devices of dp and --compare (default 2, but 1 rank on "
                 "one core); not under a launcher; also --nproc-per-node")
      ->type_name("N");
  // This is torchrun's name for it.
  app.add_option("--nproc-per-node,--nproc_per_node", texts.ranks)->group("");
  add_choice(app, "--strategy", options.strategy, kStrategies, "How ranks share the work (ddp)");
  add_choice(app, "--model", options.model, kModels,
             "mlp, cnn: images; gpt: text (mlp; --compare cnn)");
  app.add_option("--devices", texts.devices, "dp: names of the devices, \"0,1,2\"")
      ->type_name("LIST");
  add_choice(app, "--device", options.device, kComputeDevices,
             "Where ranks compute. cuda: local rank r on GPU r of those that CUDA_VISIBLE_DEVICES "
             "leaves, dp on the GPUs of --devices (cpu)");
  app.add_option("--device-map", texts.device_map,
                 "cuda: the GPU of each local rank, or of each of --devices, \"0,0,1,1\"; repeated "
                 "where there are fewer")
      ->type_name("LIST");
  add_choice(
      app, "--pin-memory", options.pin_memory, kPinMemories,
      "cuda: batches in page-locked memory, copied straight from there when longer than 4 MiB; "
      "auto: where memory and its limits allow; not with --compare (auto)");
  app.add_option("--output-device", texts.output_device,
                 "dp: where outputs are gathered (default: the first)")
      ->type_name("K");
  app.add_option("--gpu0-batch", texts.gpu0_batch,
                 "dp-balanced: samples of the first device; with cnn not 0 (default: half an even "
                 "share; with --compare three quarters)")
      ->type_name("B");
  const std::vector<std::string> transports = transports_of_processes();
  show(app.add_option("--transport", options.transport, "Between ranks (auto: the best there is)")
           ->check(CLI::IsMember(transports)),
       fmt::format("{}", fmt::join(transports, "|")));
}

void declare_data(CLI::App& app, Options& options) {
  app.add_option("--data", options.data,
                 "A folder of IDX files; for gpt a text or folder of texts (default: "
                 "Fashion-MNIST; licence texts)")
      ->type_name("PATH");
  add_choice(app, "--load", options.load, kLoadModes,
             "gather: each rank reads a part, all get all; local: each reads all; lazy: each reads "
             "its own samples, when they are needed (gather)");
  add_number(app, "--workers", options.workers, 0, kWorkersMax, "K",
             "Threads per rank that prepare batches ahead (0)");
  app.add_flag("--sort-batches", options.sort_batches,
               "Text by lines, batches of lines of like length; the padding behind them counts in "
               "the loss, not in the test accuracy");
}

void declare_training(CLI::App& app, Texts& texts, Options& options) {
  app.add_option("--epochs", texts.epochs, "Passes over the data (5; cnn 6)")->type_name("N");
  add_number(app, "--batch,--batch-size", options.batch, 1, kBatchMax, "B",
             "Samples of a step over ALL ranks and passes; torch counts them per rank "
             "(128, or what divides below it; --compare's own model 64)");
  add_number(app, "--accumulate", options.accumulate, 1, kBatchMax, "K",
             "Passes per step; gradients are exchanged in the last (1)");
  add_choice(app, "--optimizer", options.optimizer, kOptimizers,
             "sgd: with momentum; adamw: with a rate of its own for each parameter (adamw)");
  app.add_option("--lr,--learning-rate", texts.rate,
                 "Learning rate of a batch of 128 (adamw 0.0007, cnn 0.001; sgd 0.05)")
      ->type_name("X");
  add_choice(app, "--scale-lr", options.scaling, kScalings, "How --lr follows --batch (none)");
  add_number(app, "--warm-up", options.warm_up, 0, kStepsMax, "STEPS",
             "Steps from --lr to the scaled rate (0)");
  add_number(app, "--momentum", options.momentum, 0.0, 1.0, "X", "sgd: from 0 to 1 (0.9)");
  add_number(app, "--weight-decay", options.weight_decay, 0.0, 1.0, "X",
             "From 0 to 1 (sgd 0, adamw 0.01)");
  app.add_flag("--sync-bn", options.sync_bn, "cnn: batch norms over the batches of all ranks");
  add_choice(
      app, "--checkpointing", options.checkpointing, kCheckpointings,
      "Activations for the backward pass. none: all are kept; poor: the input alone, all else "
      "is computed again, in O(n^2) steps; sqrt: every sqrt(n)-th of n (none)");
  app.add_option("--seed", options.seed, "Of weights and order of samples (1)")->type_name("N");
  add_number(app, "--limit-steps", options.limit_steps, 1, kStepsMax, "N",
             "Only so many steps of each epoch, and tests cut alike: to try something; "
             "--compare: steps of each strategy (100)");
}

void declare_exchange(CLI::App& app, Texts& texts, Options& options) {
  add_choice(app, "--compress", options.compression, kCompressions,
             "ddp: type that gradients travel in (none)");
  app.add_flag("--no-overlap", texts.no_overlap, "ddp: exchange after the backward pass");
  app.add_option("--bucket", texts.bucket, "ddp: bytes of a bucket of gradients (25M)")
      ->type_name("SIZE");
  app.add_flag("--find-unused", options.find_unused, "ddp: some passes use not all parameters");
  app.add_flag("--canonical", options.canonical,
               "ddp, zero1: gradients summed in one order, whatever the algorithm");
  app.add_flag("--bitwise", options.bitwise,
               "ddp: 8 micro-batches a step, every bit the same on 1, 2, 4 and 8 ranks");
}

void declare_files(CLI::App& app, Options& options) {
  app.add_option("--checkpoint", options.checkpoint, "Written at the end of each epoch")
      ->type_name("FILE");
  add_number(app, "--checkpoint-every", options.checkpoint_every, 1, kStepsMax, "STEPS",
             "... and after so many steps");
  app.add_option("--resume", options.resume,
                 "Goes on from a checkpoint, of any strategy and number of ranks")
      ->type_name("FILE");
  app.add_option(
         "--output", options.output,
         "Folder for log and charts, see below; a fresh run overwrites them (unisono-train)")
      ->type_name("DIR");
  app.add_flag(
      "--elastic", options.elastic,
      "ddp, cpu: outlives failures: the ranks that are left go on, and those that `unisono "
      "run --max-restarts` starts again come back (without a launcher: 3 restarts)");
  app.add_flag("--compare", options.compare,
               "Instead of training: all strategies on the same data, what each moves and takes, "
               "beside what the theory says");
  app.add_flag("--json", options.json, "JSON lines on standard output: the log");
  app.add_flag("--quiet", options.quiet, "No progress, only the result");
  app.add_option("--screen", options.screen)->group("");
}

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 2;
  return CPU_COUNT(&set);
}

Result<std::vector<int>> parse_devices(const std::string& text, const char* option) {
  std::vector<int> devices;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    UNISONO_ASSIGN(const auto device,
                   tools::parse_integer(text.substr(begin, end - begin), option, 0, 1 << 20));
    devices.push_back(static_cast<int>(device));
    if (devices.size() > kDevicesMax) {
      return tools::invalid("{}: more than {} devices", option, kDevicesMax);
    }
    begin = end + 1;
  }
  return devices;
}

// Ranks of the job and devices of a process: one number, -n, says either.
Status fill_ranks(const Texts& texts, int launched, Options& options) {
  int ranks = options.strategy == StrategyKind::kSingle ? 1 : std::min(usable_cores(), 2);
  const bool is_dp = is_in_process(options.strategy) && options.strategy != StrategyKind::kSingle;
  if (is_dp || options.compare) ranks = 2;
  if (!texts.ranks.empty()) {
    UNISONO_ASSIGN(const auto given, tools::parse_integer(texts.ranks, "--ranks", 1, kRanksMax));
    ranks = static_cast<int>(given);
  }
  if (launched > 0 && !texts.ranks.empty() && launched != ranks) {
    return tools::invalid("--ranks {} disagrees with the launcher, which started {}; leave it away",
                          ranks, launched);
  }
  if (options.compare && launched > 1) {
    return tools::invalid("--compare starts its own ranks; start it without a launcher");
  }
  if (!is_in_process(options.strategy) && !options.compare) {
    options.ranks = launched > 0 ? launched : ranks;
    return {};
  }
  options.ranks = std::max(launched, 1);
  if (!texts.devices.empty()) {
    UNISONO_ASSIGN(options.devices, parse_devices(texts.devices, "--devices"));
    if (!texts.ranks.empty() && static_cast<int>(options.devices.size()) != ranks) {
      return tools::invalid("--ranks {} disagrees with the {} devices of --devices", ranks,
                            options.devices.size());
    }
    return {};
  }
  if (ranks > kDevicesMax) {
    return tools::invalid("--ranks: {} devices are more than {}", ranks, kDevicesMax);
  }
  for (int device = 0; device < ranks; ++device) options.devices.push_back(device);
  return {};
}

Result<float> parse_rate(const std::string& text) {
  const auto refused = [&text](const std::string& why) {
    return tools::invalid("--lr: '{}' {}", text.substr(0, 64), why);
  };
  char* end = nullptr;
  const double rate = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(rate > 0)) return refused("is not a positive number");
  if (rate > kRateMax) {
    return refused(fmt::format("is above the limit of {}; take a smaller rate", kRateMax));
  }
  if (rate < kRateMin) {
    return refused(fmt::format("is below the limit of {}; take a larger rate", kRateMin));
  }
  return static_cast<float>(rate);
}

// The default does not divide into 3 ranks, and nobody asked for it.
void cut_default_batch(Options& options) {
  if (options.bitwise) return;
  const std::size_t ranks =
      options.compare ? options.devices.size() : static_cast<std::size_t>(options.ranks);
  const std::size_t parts = ranks * options.accumulate;
  if (parts > options.batch || options.batch % parts == 0) return;
  options.cut_from = options.batch;
  options.batch = options.batch / parts * parts;
}

Status fill(const CLI::App& app, const Texts& texts, int launched, Options& options) {
  UNISONO_TRY(fill_ranks(texts, launched, options));
  if (options.compare && app.count("--model") == 0) {
    options.model = ModelKind::kCnn;
    options.is_workload_default = true;
    if (app.count("--batch") == 0) options.batch = kComparedBatch;
  }
  if (app.count("--device-map") > 0) {
    UNISONO_ASSIGN(options.device_map, parse_devices(texts.device_map, "--device-map"));
  }
  if (app.count("--batch") == 0) cut_default_batch(options);
  options.epochs = options.model == ModelKind::kCnn ? 6 : 5;
  if (!texts.epochs.empty()) {
    UNISONO_ASSIGN(const auto epochs,
                   tools::parse_integer(texts.epochs, "--epochs", 1, kEpochsMax));
    options.epochs = static_cast<std::size_t>(epochs);
  }
  const float adamw_rate = options.model == ModelKind::kCnn ? 1e-3F : 7e-4F;
  options.rate = options.optimizer == OptimizerKind::kSgd ? 0.05F : adamw_rate;
  if (!texts.rate.empty()) {
    UNISONO_ASSIGN(options.rate, parse_rate(texts.rate));
  }
  if (app.count("--weight-decay") == 0 && options.optimizer == OptimizerKind::kAdamW) {
    options.weight_decay = 0.01F;
  }
  if (!texts.output_device.empty()) {
    UNISONO_ASSIGN(const auto device,
                   tools::parse_integer(texts.output_device, "--output-device", 0, 1 << 20));
    options.output_device = static_cast<int>(device);
  }
  if (!texts.gpu0_batch.empty()) {
    UNISONO_ASSIGN(const auto first,
                   tools::parse_integer(texts.gpu0_batch, "--gpu0-batch", 0, kBatchMax));
    options.first_batch = static_cast<std::size_t>(first);
  } else if (options.strategy == StrategyKind::kDpBalanced) {
    const std::size_t devices = std::max<std::size_t>(options.devices.size(), 1);
    options.first_batch =
        std::max<std::size_t>(options.batch / options.accumulate / devices / 2, 1);
  }
  UNISONO_ASSIGN(const auto bucket, tools::parse_bytes(texts.bucket, "--bucket",
                                                       {.min = 1, .max = std::uint64_t{1} << 40}));
  options.bucket_bytes = static_cast<std::size_t>(bucket);
  options.overlap = !texts.no_overlap;
  options.is_checked = app.count("--screen") > 0;
  options.seed_given = app.count("--seed") > 0;
  return {};
}

// Those that a comparison, which runs all strategies in its own way, takes no account of.
std::vector<std::string> given_of_training(const CLI::App& app) {
  std::vector<std::string> given;
  for (const char* name : {"--strategy",     "--output-device",    "--load",       "--workers",
                           "--sort-batches", "--epochs",           "--accumulate", "--scale-lr",
                           "--warm-up",      "--sync-bn",          "--compress",   "--no-overlap",
                           "--bucket",       "--find-unused",      "--canonical",  "--bitwise",
                           "--checkpoint",   "--checkpoint-every", "--resume",     "--output",
                           "--pin-memory",   "--elastic"}) {
    if (app.count(name) > 0) given.emplace_back(name);
  }
  return given;
}

// Words that belong to other strategies or models: said by name, since a silent one misleads.
Status check_given(const CLI::App& app, const Options& options) {
  const auto refuse = [&](const char* name, bool belongs, const char* to) -> Status {
    if (app.count(name) == 0 || belongs) return {};
    return tools::invalid("{} belongs to {}; this is --strategy {} with --model {}", name, to,
                          name_of(options.strategy), name_of(options.model));
  };
  UNISONO_TRY(refuse("--momentum", options.optimizer == OptimizerKind::kSgd, "--optimizer sgd"));
  for (const char* name : {"--device-map", "--pin-memory"}) {
    if (app.count(name) > 0 && options.device != ComputeDevice::kCuda) {
      return tools::invalid("{} belongs to --device cuda; this is --device cpu", name);
    }
  }
  if (options.compare) return check_comparison(given_of_training(app));
  const bool is_ddp = options.strategy == StrategyKind::kDdp;
  const bool is_dp = is_in_process(options.strategy) && options.strategy != StrategyKind::kSingle;
  UNISONO_TRY(refuse("--devices", is_dp, "dp, dp-balanced and dp-criterion"));
  UNISONO_TRY(refuse("--output-device", is_dp, "dp, dp-balanced and dp-criterion"));
  UNISONO_TRY(refuse("--gpu0-batch", options.strategy == StrategyKind::kDpBalanced,
                     "--strategy dp-balanced"));
  for (const char* name :
       {"--compress", "--no-overlap", "--bucket", "--find-unused", "--bitwise"}) {
    UNISONO_TRY(refuse(name, is_ddp, "--strategy ddp"));
  }
  UNISONO_TRY(refuse("--canonical", is_ddp || options.strategy == StrategyKind::kZero1,
                     "--strategy ddp and zero1"));
  UNISONO_TRY(refuse("--transport", !is_in_process(options.strategy), "--strategy ddp and zero1"));
  UNISONO_TRY(refuse("--sort-batches", options.model == ModelKind::kGpt, "text (--model gpt)"));
  if (options.checkpoint.empty() && app.count("--checkpoint-every") > 0) {
    return tools::invalid("--checkpoint-every needs --checkpoint FILE");
  }
  return {};
}

template <typename T>
std::string_view word_of(const std::map<std::string, T>& words, T value) {
  for (const auto& [word, meaning] : words) {
    if (meaning == value) return word;
  }
  return "?";
}

}  // namespace

std::string_view name_of(StrategyKind kind) { return word_of(kStrategies, kind); }
std::string_view name_of(ModelKind kind) { return word_of(kModels, kind); }
std::string_view name_of(OptimizerKind kind) { return word_of(kOptimizers, kind); }
std::string_view name_of(RateScaling scaling) { return word_of(kScalings, scaling); }

std::string cut_text(const Options& options) {
  if (options.cut_from == 0) return "";
  return fmt::format(" (the default of {}, rounded down to divide)", options.cut_from);
}

bool is_in_process(StrategyKind kind) {
  return kind != StrategyKind::kDdp && kind != StrategyKind::kZero1;
}

std::size_t Options::passes() const {
  return bitwise ? kMicroBatches / static_cast<std::size_t>(ranks) : accumulate;
}

std::size_t Options::pass_samples() const {
  return bitwise ? batch / kMicroBatches : batch / accumulate / static_cast<std::size_t>(ranks);
}

Parsed parse_options(int argc, char** argv, int launched_ranks) {
  CLI::App app(kDescription, "unisono train");
  app.footer(kFooter);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  Texts texts;
  Parsed parsed;
  declare_what(app, texts, parsed.options);
  declare_data(app, parsed.options);
  declare_training(app, texts, parsed.options);
  declare_exchange(app, texts, parsed.options);
  declare_files(app, parsed.options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    parsed.exit_status = tools::finish_parsing(app, error);
    return parsed;
  }
  Status status = fill(app, texts, launched_ranks, parsed.options);
  if (status) status = check_given(app, parsed.options);
  if (status) status = check_combination(parsed.options, &parsed.options.notes);
  if (!status) {
    fmt::print(stderr, "unisono train: {}\n", status.message());
    parsed.exit_status = 2;
    return parsed;
  }
  parsed.should_run = true;
  return parsed;
}

}  // namespace unisono::train
