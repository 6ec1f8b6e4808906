// The story of training, from the command line to the last line of the log: the ranks meet, the
// data come to them, a model is made or taken from a checkpoint, a strategy trains it, every epoch
// ends with a test, and rank 0 tells what it has cost.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "config/config.h"
#include "tools/common/commands.h"
#include "tools/common/environment.h"
#include "tools/common/local_ranks.h"
#include "tools/common/output.h"
#include "tools/common/terminal.h"
#include "tools/train/batch_memory.h"
#include "tools/train/compare.h"
#include "tools/train/costs.h"
#include "tools/train/elastic.h"
#include "tools/train/evaluation.h"
#include "tools/train/options.h"
#include "tools/train/placement.h"
#include "tools/train/problem.h"
#include "tools/train/report.h"
#include "tools/train/strategy.h"
#include "unisono/communicator.h"
#include "unisono/rendezvous.h"
#include "unisono/train/checkpoint.h"
#include "unisono/train/schedule.h"

namespace unisono::train {
namespace {

// Samples of a test batch: enough for the matrix products, few enough for any memory.
constexpr std::size_t kTestBatch = 250;
// In the second step ddp tells all ranks the final form of its buckets, once.
constexpr std::size_t kSettlingSteps = 2;
// How often failed ranks are started again, with --elastic and no launcher around it.
constexpr int kRestarts = 3;

double seconds_since(TimePoint start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Where training stands: what a checkpoint keeps of the loop.
struct Position {
  std::size_t epoch = 0;    ///< under way, from 0 on
  std::size_t step = 0;     ///< of this epoch, the next one to take
  std::uint64_t total = 0;  ///< steps taken since the model was new
};

// Where an epoch has fewer steps than it had once, the one under way is over.
Position position_of(const Checkpoint& checkpoint, std::size_t steps) {
  if (checkpoint.step >= steps) return {checkpoint.epoch + 1, 0, checkpoint.optimizer_steps};
  return {checkpoint.epoch, checkpoint.step, checkpoint.optimizer_steps};
}

// The same without leaving out the test of an epoch whose steps are taken.
Position place_of(const Checkpoint& state, std::size_t steps) {
  return {state.epoch, std::min<std::size_t>(state.step, steps), state.optimizer_steps};
}

// What one rank trains with.
struct Training {
  const Options& options;
  Communicator& world;
  Strategy& strategy;
  Loader& loader;
  Loader& test_loader;
  const Dataset& test_samples;
  LearningRateSchedule schedule;
  Report& report;
  DeviceMemory& memory;
  std::size_t steps_per_epoch;
  int missing = 0;       ///< ranks that may come yet
  Communicator grown{};  ///< with some of those; then this one is over
  Position at{};
  std::size_t steps_here = 0;  ///< of this process
  double seconds_here = 0;     ///< in them
  /// After kSettlingSteps: what came before is not what a step takes.
  std::vector<DeviceCost> settled{};
  std::size_t peak_memory = 0;
};

LearningRateSchedule schedule_of(const Options& options) {
  return LearningRateSchedule({.base_rate = options.rate,
                               .scaling = options.scaling,
                               .base_batch = kBaseBatch,
                               .global_batch = options.batch,
                               .warm_up_steps = options.warm_up});
}

// All that this rank goes on from. `checkpoint` has the optimizer.
void complete(const Training& training, Checkpoint* checkpoint) {
  const Options& options = training.options;
  take_model(training.strategy.model(), checkpoint);
  checkpoint->epoch = training.at.epoch;
  checkpoint->step = training.at.step;
  checkpoint->step_samples = options.batch;
  checkpoint->order = order_of(options);
  checkpoint->sampler_seed = options.seed;
}

// Losses are the mean of all ranks' and parameters the same on all, so all of them stop alike.
[[noreturn]] void fail_diverged(const Training& training, const std::string& what) {
  throw std::runtime_error(fmt::format("{}; lower --lr {}", what, training.options.rate));
}

bool has_finite_parameters(const Checkpoint& checkpoint) {
  return std::ranges::all_of(checkpoint.parameters, [](const Checkpoint::NamedTensor& each) {
    return std::ranges::all_of(each.values, [](float value) { return std::isfinite(value); });
  });
}

// Every rank has arrived before rank 0 writes, and none goes on before the file is whole.
// Parameters that are no numbers leave the checkpoint before as it is.
void save(const Training& training) {
  if (training.options.checkpoint.empty()) return;
  Checkpoint checkpoint;
  training.strategy.take_optimizer(&checkpoint);
  complete(training, &checkpoint);
  if (!has_finite_parameters(checkpoint)) {
    fail_diverged(training,
                  fmt::format("parameters are not finite after {} steps", training.at.total));
  }
  training.world.barrier();
  if (training.world.rank() == 0) save_and_tell(training.options, checkpoint);
  training.world.barrier();
}

// After a failure, too: a step that was not whole has changed neither parameters nor optimizer, but
// the failure may have come between these and the count of steps. Running statistics of batch norms
// have moved by its forward passes, and move again when it is repeated: by one step's momentum, of
// which nothing is left after some dozens.
Checkpoint state_of(const Training& training) {
  Checkpoint state;
  training.strategy.take_optimizer(&state);
  complete(training, &state);
  state.step += state.optimizer_steps - training.at.total;
  return state;
}

// Whether those that were started again have come, before a step.
bool has_grown(Training& training) {
  if (training.missing > 0) training.grown = let_in(training.world, training.missing);
  return !training.grown.empty();
}

// This rank's passes of the next step; empty at the end of the epoch.
std::vector<Batch> next_passes(Loader& loader, std::size_t passes) {
  std::vector<Batch> batches;
  while (batches.size() < passes) {
    std::optional<Batch> batch = loader.next();
    if (!batch) return {};
    batches.push_back(std::move(*batch));
  }
  return batches;
}

ProgressState progress_of(const Training& training, double loss, double mean) {
  const std::size_t epochs_left = training.options.epochs - training.at.epoch;
  const std::size_t steps_left = epochs_left * training.steps_per_epoch - training.at.step;
  const double per_step = training.seconds_here / static_cast<double>(training.steps_here);
  return {.epoch = training.at.epoch + 1,
          .epochs = training.options.epochs,
          .step = training.at.step,
          .steps = training.steps_per_epoch,
          .samples_per_second = static_cast<double>(training.options.batch) / per_step,
          .seconds_left = per_step * static_cast<double>(steps_left),
          .loss = mean,
          .step_loss = loss};
}

// Calls are counted when they are over, on GPUs too.
std::vector<DeviceCost> costs_of(Training& training) {
  training.memory.wait();
  return training.strategy.costs(training.peak_memory);
}

// The steps of one epoch.
EpochResult train_epoch(Training& training) {
  const Options& options = training.options;
  const TimePoint start = Clock::now();
  const double seconds_before = training.seconds_here;
  RunningMean mean;
  training.loader.begin(training.at.epoch, training.at.step * options.passes());
  while (training.at.step < training.steps_per_epoch && !has_grown(training)) {
    const std::vector<Batch> passes = next_passes(training.loader, options.passes());
    if (passes.empty()) break;
    const float rate = training.schedule.at(training.at.total);
    const double loss = training.strategy.step(passes, rate, training.at.total);
    if (!std::isfinite(loss)) {
      fail_diverged(training, fmt::format("the loss is {} in step {} of epoch {}", loss,
                                          training.at.step + 1, training.at.epoch + 1));
    }
    mean.add(loss);
    ++training.at.step;
    ++training.at.total;
    ++training.steps_here;
    if (training.steps_here == kSettlingSteps) training.settled = costs_of(training);
    training.seconds_here = seconds_before + seconds_since(start);
    training.report.step(progress_of(training, loss, mean.value()));
    const bool is_due =
        options.checkpoint_every > 0 && training.at.total % options.checkpoint_every == 0;
    if (is_due && training.at.step < training.steps_per_epoch) save(training);
  }
  const double seconds = seconds_since(start);
  return {.epoch = training.at.epoch + 1,
          .steps = mean.steps(),
          .train_loss = mean.value(),
          .seconds = seconds,
          .samples_per_second = static_cast<double>(mean.steps() * options.batch) / seconds,
          .test = {}};
}

// A rank that cannot go on tells the others, who would learn otherwise that it has left, not why.
// One that can keeps where it stands.
template <typename Work>
void guarded(Training& training, std::optional<Checkpoint>* state, const Work& work) {
  try {
    work();
  } catch (const std::exception& failure) {
    const auto* const error = dynamic_cast<const Error*>(&failure);
    if (training.options.elastic && error != nullptr && is_survivable(*error)) {
      *state = state_of(training);
    } else {
      // All its communicators number the ranks alike.
      const bool is_passed_on = error != nullptr && error->failed_in().number >= 0;
      const Rank failed_rank = is_passed_on ? error->rank() : training.world.rank();
      training.strategy.abort(failure.what(), failed_rank);
      training.world.abort(failure.what(), failed_rank);
    }
    throw;
  }
}

void train(Training& training) {
  while (training.at.epoch < training.options.epochs) {
    EpochResult result = train_epoch(training);
    if (!training.grown.empty()) return;
    training.peak_memory = std::max(training.peak_memory, training.memory.use().peak);
    result.test =
        evaluate(training.strategy, training.test_loader, training.test_samples, training.world);
    training.memory.reset_peak();  // a test's batches are larger
    if (!std::isfinite(result.test.loss)) {
      fail_diverged(training, fmt::format("the test loss is {} after epoch {}", result.test.loss,
                                          result.epoch));
    }
    training.report.epoch(result);
    ++training.at.epoch;
    training.at.step = 0;
    save(training);
  }
}

// The same samples on any number of ranks.
std::size_t test_count(const Options& options, std::size_t samples) {
  if (options.limit_steps == 0) return samples;
  return static_cast<std::size_t>(
      std::min(double(samples), double(options.limit_steps) * double(options.batch)));
}

std::unique_ptr<LoadedDataset> load_samples(const Options& options, Communicator& world,
                                            std::shared_ptr<const SampleSource> source) {
  return load(std::move(source), &world,
              {.mode = options.load,
               .sort_batches = options.sort_batches,
               .threads = std::max(options.workers, 1)});
}

// Where the batches of training and of tests wait for the GPU.
BatchMemory batch_memory(const Options& options, const Dataset& samples, Report& report) {
  if (options.device == ComputeDevice::kCpu) return {};
  const std::size_t floats = element_count(samples.input_shape());
  // Those of a step, those that workers have ready or in the making, and one of the tests.
  const std::size_t ahead = static_cast<std::size_t>(options.workers) * LoaderOptions{}.ahead;
  const std::size_t count = options.passes() + ahead;
  const std::size_t rows = count * options.pass_samples() + (1 + ahead) * kTestBatch;
  const std::size_t bytes = rows * floats * sizeof(float);
  BatchMemory memory =
      choose_batch_memory(options.pin_memory, first_gpu(options), bytes,
                          static_cast<std::size_t>(tools::launched_place().local_size));
  if (report.speaks()) {
    report.batches(memory, measure_copies(first_gpu(options), {options.pass_samples(), floats}),
                   options.pass_samples() * floats * sizeof(float));
  }
  return memory;
}

bool has_launcher_store(const Options& options) {
  return options.elastic && launcher_store() != nullptr;
}

// Trains from when these ranks have met to the end, or until some of `missing` others have come:
// then returns the communicator with those. `state`: what to go on from, also after a failure.
Communicator train_together(Options options, Communicator& world, DeviceMemory& memory, int missing,
                            TimePoint start, std::optional<Checkpoint>* state) {
  // Training has a communicator to itself, so that what it moves is counted apart.
  Communicator exchange = world.duplicate();
  const RankPlace place{.ranks = world.size(), .rank = world.rank()};
  const Problem problem = open_problem(options);
  if (options.elastic) share_state(world, options, problem, state);
  if (*state) options.seed = (*state)->sampler_seed;
  options.goes_on = state->has_value();
  Report report(options, world.rank());
  for (const std::string& note : options.notes) report.note(note);
  report.seats(gather_seats(options, world));

  // The data come to the ranks.
  const auto samples = load_samples(options, world, problem.train);
  const auto test_samples = load_samples(options, world, problem.test);
  const auto sampler = make_sampler(options, *samples, place);
  EvaluationSampler test_sampler(test_count(options, test_samples->size()), place);
  const BatchMemory batches = batch_memory(options, *samples, report);
  Loader loader(*samples, *sampler,
                {.batch_samples = options.pass_samples(),
                 .drop_last = true,
                 .workers = options.workers,
                 .memory = batches.memory.get()});
  Loader test_loader(
      *test_samples, test_sampler,
      {.batch_samples = kTestBatch, .workers = options.workers, .memory = batches.memory.get()});

  // The model, new or from a checkpoint of any strategy, and the strategy that trains it.
  auto model = make_model(options, *problem.train);
  if (*state) restore_model(**state, model.get());
  const LearningRateSchedule schedule = schedule_of(options);
  report.start(*model, samples->describe(), world.describe(), schedule.scaled());
  const auto strategy = make_strategy(options, std::move(model), exchange);
  if (*state) strategy->restore_optimizer(**state);

  const std::size_t steps = steps_of_epoch(options, *problem.train);
  Training training{.options = options,
                    .world = world,
                    .strategy = *strategy,
                    .loader = loader,
                    .test_loader = test_loader,
                    .test_samples = *test_samples,
                    .schedule = schedule,
                    .report = report,
                    .memory = memory,
                    .steps_per_epoch = steps,
                    .missing = has_launcher_store(options) ? missing : 0};
  if (*state) {
    training.at = options.elastic ? place_of(**state, steps) : position_of(**state, steps);
    report.go_on(training.at.epoch);
  }

  // Epoch after epoch, then what it has cost.
  const std::vector<DeviceCost> before = costs_of(training);
  guarded(training, state, [&] {
    // The failure may have come between an epoch, perhaps the last one, and its checkpoint.
    if (options.elastic && *state && training.at.step == 0) save(training);
    train(training);
  });
  // Whoever fails from here on has nothing to train again.
  if (options.elastic) *state = state_of(training);
  if (!training.grown.empty()) return std::move(training.grown);
  report.loaded(gather_costs(world, samples->report()));
  // By the steps after the first ones, unless there are no others.
  const bool is_settled = training.steps_here > kSettlingSteps;
  const auto costs =
      gather_costs(world, costs_of(training), is_settled ? training.settled : before);
  report.end(costs, training.steps_here - (is_settled ? kSettlingSteps : 0), seconds_since(start));
  return Communicator();
}

// The same, and goes on with those that are left after a failure that they survive.
Communicator train_on(const Options& options, Communicator& world, DeviceMemory& memory,
                      TimePoint start, std::optional<Checkpoint>* state) {
  if (!options.elastic) return train_together(options, world, memory, 0, start, state);
  try {
    return train_together(options_for(options, world.size()), world, memory,
                          options.ranks - world.size(), start, state);
  } catch (const Error& failure) {
    if (!is_survivable(failure)) throw;
    Communicator left = world.shrink();
    if (left.rank() == 0) {
      fmt::print(stderr, "unisono train: {}; going on with {} of {} ranks\n", failure.what(),
                 left.size(), options.ranks);
    }
    return left;
  }
}

int run_rank(const Options& options) {
  const TimePoint start = Clock::now();
  std::optional<Checkpoint> state = saved_state(options);
  if (!state && !options.resume.empty()) state = load_checkpoint(options.resume);
  // A reader that leaves is an error of our own, so that the other ranks are told.
  std::signal(SIGPIPE, SIG_IGN);
  const std::unique_ptr<DeviceMemory> memory = open_memory(options);
  const DeviceMemory::Scope scope(*memory);

  // The ranks meet.
  Communicator world = init({.transport = options.transport, .device = first_gpu(options)});
  while (!world.empty()) world = train_on(options, world, *memory, start, &state);
  return tools::finish_output("unisono train", 0);
}

// A training of hours is not to end with nowhere to put its result.
void check_checkpoint_path(const std::string& path) {
  if (path.empty()) return;
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  int error = 0;
  if (::access((folder + "/").c_str(), W_OK | X_OK) != 0) error = errno;
  if (std::filesystem::is_directory(path)) error = EISDIR;
  if (error == 0) return;
  throw std::runtime_error(
      fmt::format("--checkpoint {} cannot be written into the folder {}: {}; make the folder or "
                  "name another file",
                  path, folder, std::strerror(error)));
}

// That there is something left to do, and that its steps are those of this training.
void check_position(const Options& options, const Checkpoint& checkpoint, std::size_t steps) {
  if (checkpoint.step > 0 &&
      (checkpoint.step_samples != options.batch || checkpoint.order != order_of(options))) {
    throw std::invalid_argument(fmt::format(
        "{} stands within an epoch, after {} steps of {} samples ({}); steps of {} samples ({}) "
        "would skip some; resume with the same, or from the end of an epoch",
        options.resume, checkpoint.step, checkpoint.step_samples, checkpoint.order, options.batch,
        order_of(options)));
  }
  if (position_of(checkpoint, steps).epoch < options.epochs) return;
  const std::string trained =
      checkpoint.step == 0
          ? fmt::format("{} epoch{}", checkpoint.epoch, checkpoint.epoch == 1 ? "" : "s")
          : fmt::format("{} steps of epoch {}", checkpoint.step, checkpoint.epoch + 1);
  throw std::invalid_argument(
      fmt::format("{} has trained {}, so --epochs {} of {} steps leaves nothing to do; raise it",
                  options.resume, trained, options.epochs, steps));
}

void check_resumed(const Options& options, const SampleSource& samples, Model& model) {
  Checkpoint checkpoint = load_checkpoint(options.resume);
  restore_model(checkpoint, &model);
  const std::size_t parameters = model.parameters().values().size();
  const auto optimizer = optimizer_of(options)(parameters);
  restore_optimizer(checkpoint, optimizer.get(), 0, parameters);
  // The file may be this training's own, which has gone on meanwhile, and ends where the others do.
  if (!options.elastic || !was_started_again()) {
    // Fewer ranks may have saved it, in steps of a smaller batch.
    if (options.elastic) convert_step(options, &checkpoint);
    check_position(options, checkpoint, steps_of_epoch(options, samples));
  }
  if (options.seed_given && checkpoint.sampler_seed != options.seed) {
    throw std::invalid_argument(
        fmt::format("--seed {} is not the {} that {} began with; leave it away", options.seed,
                    checkpoint.sampler_seed, options.resume));
  }
}

// What can be found wrong before any rank starts: files and what they hold.
void check_files(const Options& options) {
  const Problem problem = open_problem(options);
  const auto model = make_model(options, *problem.train);
  if (!options.resume.empty()) check_resumed(options, *problem.train, *model);
}

void make_output_folder(const Options& options) {
  std::error_code error;
  std::filesystem::create_directories(options.output, error);
  if (error) {
    throw std::runtime_error(
        fmt::format("cannot make the folder {}: {}; choose another by "
                    "--output",
                    options.output, error.message()));
  }
}

int run_comparison(const Options& options) {
  CompareOptions comparison{.training = options};
  if (options.limit_steps > 0) comparison.steps = options.limit_steps;
  return tools::finish_output("unisono train", compare_main(comparison));
}

// The same command once for each rank. A terminal is told to them, since the launcher's pipe is
// between.
int start_ranks(const Options& options, int argc, char** argv) {
  std::vector<char*> arguments(argv, argv + argc);
  std::string name = "--screen", columns = std::to_string(options.screen);
  arguments.push_back(name.data());
  arguments.push_back(columns.data());
  std::vector<std::string> flags;
  if (options.elastic) flags = {"--max-restarts", std::to_string(kRestarts)};
  const Status status = tools::become_local_ranks(
      options.ranks, flags, static_cast<int>(arguments.size()), arguments.data());
  fmt::print(stderr, "unisono train: {}\n", status.message());
  return 1;
}

}  // namespace
}  // namespace unisono::train

namespace unisono {

int train_main(int argc, char** argv) {
  const bool is_launched = tools::is_under_launcher();
  train::Parsed parsed =
      train::parse_options(argc, argv, is_launched ? tools::launched_ranks() : 0);
  if (!parsed.should_run) return parsed.exit_status;
  if (const Result<Config> config = Config::from_environment(); !config) {
    return tools::fail("unisono train", config.error(), 2);
  }
  train::Options& options = parsed.options;
  const tools::Place place = tools::launched_place();
  // Every rank checks, so that none waits for one that has found something; those of one machine
  // find the same, and the first of them speaks.
  bool speaks = place.local_rank == 0;
  try {
    if (!is_launched && tools::is_terminal(STDOUT_FILENO)) {
      options.screen = tools::terminal_width(STDOUT_FILENO);
    }
    if (!options.is_checked && !options.compare) {
      // Rank 0 writes, and any other after a failure.
      const bool may_write = place.rank == 0 || options.elastic;
      if (may_write) train::check_checkpoint_path(options.checkpoint);
      train::check_files(options);
      if (may_write) train::make_output_folder(options);
    }
    speaks = true;
    if (options.compare) return train::run_comparison(options);
    if (!is_launched && options.ranks > 1) return train::start_ranks(options, argc, argv);
    return train::run_rank(options);
  } catch (const train::SharedFailure&) {
    return 1;
  } catch (const std::exception& error) {
    const std::string_view what = error.what();
    const bool is_named = !is_launched || what.starts_with(fmt::format("rank {} ", place.rank));
    if (speaks) {
      fmt::print(stderr, "unisono train: {}{}\n",
                 is_named ? std::string() : fmt::format("rank {}: ", place.rank), what);
    }
    return 1;
  }
}

}  // namespace unisono
