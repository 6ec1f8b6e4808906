// What a training needs to outlive its ranks: which failures it survives, the options for another
// number of ranks, and one state for those that are left and those that come.
//
// Threads: one thread at a time, the one that uses the communicator.
#pragma once

#include <optional>

#include "tools/train/options.h"
#include "tools/train/problem.h"
#include "unisono/communicator.h"
#include "unisono/error.h"
#include "unisono/train/checkpoint.h"

namespace unisono::train {

/// By the launcher, after a failure.
bool was_started_again();

/// Of rank 0: writes the checkpoint, and tells later starts of this job that it is of this
/// training.
void save_and_tell(const Options& options, const Checkpoint& checkpoint);
/// The checkpoint, where an earlier start of this job has written what lies there: one that was
/// there before is another training's, and the job's may lie on another machine's disk. Without the
/// store of `unisono run --max-restarts` nobody knows. Throws as load_checkpoint() where the file
/// is damaged.
std::optional<Checkpoint> saved_state(const Options& options);

/// The ranks that are left may shrink() and go on.
bool is_survivable(const Error& failure);

/// As they hold for so many ranks: a step's batch is the largest that divides among them.
/// std::invalid_argument where that is none.
Options options_for(const Options& options, int ranks);

/// Moves the state to the place in the epoch that its samples reach in steps of `options`. Another
/// batch rounds it down, by less than one step.
void convert_step(const Options& options, Checkpoint* state);

/// Collective. Of the ranks' states the one with most steps becomes that of all, with its seed,
/// after convert_step(). Nothing where no rank has one. Ranks that survive a failure may differ by
/// one step: those that had taken it keep it, the others get it from them, so that no step is lost
/// or taken twice. A failure leaves the state as it was.
void share_state(Communicator& world, const Options& options, const Problem& problem,
                 std::optional<Checkpoint>* state);

/// Collective, between two steps. The communicator with those that `unisono run` has started again
/// and that wait; empty where none does, or one has died on its way.
Communicator let_in(Communicator& world, int at_most);

}  // namespace unisono::train
