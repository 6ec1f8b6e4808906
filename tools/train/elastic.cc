#include "tools/train/elastic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/fnv.h"
#include "tools/common/environment.h"
#include "tools/train/strategy.h"
#include "unisono/rendezvous.h"
#include "unisono/train/model.h"
#include "unisono/train/optimizer.h"

namespace unisono::train {
namespace {

// In the launcher's store: the marks of what this job may have left in its checkpoint.
constexpr std::string_view kSavedKey = "unisono/train/saved";

// What tells a checkpoint from those of other trainings.
std::string mark_of(const Checkpoint& checkpoint) {
  std::uint64_t mark = checkpoint.optimizer_steps;
  for (const Checkpoint::NamedTensor& each : checkpoint.parameters) {
    const auto bytes = std::as_bytes(std::span(each.values));
    mark = mark * 31 + fnv1a_64({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  return fmt::format("<{:x}>", mark);
}

std::string saved_marks(Store& store) { return store.get(kSavedKey, std::chrono::milliseconds(1)); }

// The form of all states of this training, to be filled with another rank's values.
Checkpoint blank_state(const Options& options, const Problem& problem) {
  Checkpoint state;
  const auto model = make_model(options, *problem.train);
  take_model(*model, &state);
  take_optimizer(*optimizer_of(options)(model->parameters().values().size()), &state);
  state.order = order_of(options);
  state.sampler_seed = options.seed;
  return state;
}

void broadcast_values(Communicator& world, Rank root, Checkpoint* state) {
  for (auto* tensors : {&state->parameters, &state->buffers}) {
    for (Checkpoint::NamedTensor& each : *tensors) world.broadcast(each.values, root);
  }
  for (Checkpoint::NamedArray& each : state->optimizer_state) world.broadcast(each.values, root);
  std::uint64_t place[]{state->optimizer_steps, state->epoch, state->step, state->step_samples,
                        state->sampler_seed};
  world.broadcast(std::span<std::uint64_t>(place), root);
  state->optimizer_steps = place[0];
  state->epoch = place[1];
  state->step = place[2];
  state->step_samples = place[3];
  state->sampler_seed = place[4];
}

}  // namespace

bool is_survivable(const Error& failure) {
  switch (failure.code()) {
    case ErrorCode::kRankFailed:
    case ErrorCode::kRankLeft:
    case ErrorCode::kCorrupted:  // as after a rank's death, shrink() leaves out who sent it
    case ErrorCode::kTimeout:
    case ErrorCode::kAborted:  // another rank has gone on before, or could not
      return true;
    default:
      return false;
  }
}

Options options_for(const Options& options, int ranks) {
  const std::size_t parts = static_cast<std::size_t>(ranks) * options.accumulate;
  Options those = options;
  those.ranks = ranks;
  those.batch = options.batch / parts * parts;
  if (those.batch > 0) return those;
  throw std::invalid_argument(
      fmt::format("--batch {} leaves nothing to some of {} ranks; raise it", options.batch, ranks));
}

void convert_step(const Options& options, Checkpoint* state) {
  if (state->step_samples == 0) return;
  state->step = state->step * state->step_samples / options.batch;
  state->step_samples = options.batch;
}

void share_state(Communicator& world, const Options& options, const Problem& problem,
                 std::optional<Checkpoint>* state) {
  // 0: none; a new model has taken no step, but may come from a file.
  const std::uint64_t own = *state ? (*state)->optimizer_steps + 1 : 0;
  std::vector<std::uint64_t> all(static_cast<std::size_t>(world.size()));
  world.all_gather(std::span<const std::uint64_t>(&own, 1), all);
  const auto most = std::max_element(all.begin(), all.end());
  if (*most == 0) return;
  // A failure meanwhile leaves each rank what it had: half of another's state is none.
  Checkpoint shared = *state ? **state : blank_state(options, problem);
  broadcast_values(world, static_cast<Rank>(most - all.begin()), &shared);
  convert_step(options, &shared);
  *state = std::move(shared);
}

bool was_started_again() {
  const auto count = tools::environment_value("TORCHELASTIC_RESTART_COUNT");
  return count && std::atoi(std::string(*count).c_str()) > 0;
}

void save_and_tell(const Options& options, const Checkpoint& checkpoint) {
  const std::unique_ptr<Store> store = options.elastic ? launcher_store() : nullptr;
  if (store == nullptr) return save_checkpoint(options.checkpoint, checkpoint);
  const std::string mark = mark_of(checkpoint);
  // Whoever dies meanwhile leaves the checkpoint before or this one.
  store->set(kSavedKey, saved_marks(*store) + mark);
  save_checkpoint(options.checkpoint, checkpoint);
  store->set(kSavedKey, mark);
}

std::optional<Checkpoint> saved_state(const Options& options) {
  if (!options.elastic || options.checkpoint.empty() || !was_started_again()) return {};
  const std::unique_ptr<Store> store = launcher_store();
  if (store == nullptr) return {};
  const std::string marks = saved_marks(*store);
  if (marks.empty() || !std::filesystem::exists(options.checkpoint)) return {};
  Checkpoint state = load_checkpoint(options.checkpoint);
  if (marks.find(mark_of(state)) == std::string::npos) return {};
  return state;
}

Communicator let_in(Communicator& world, int at_most) {
  constexpr std::chrono::seconds kMeetTime{10};
  try {
    return world.grow({.at_most = at_most, .timeout = kMeetTime});
  } catch (const Error& failure) {
    if (failure.code() == ErrorCode::kRendezvous) return Communicator();
    throw;
  }
}

}  // namespace unisono::train
