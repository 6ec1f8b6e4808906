// Going on from a checkpoint of `unisono train`: from where, with what, and what a file keeps.
#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/support/watchdog.h"
#include "train_command.h"
#include "unisono/train/checkpoint.h"

namespace unisono::train {
namespace {

using test::is_anothers_case;
using test::is_thread_sanitized;
using test::kNumbersAlone;
using test::kStrategies;
using test::run_line;
using test::ShellRun;
using testing::AllOf;
using testing::HasSubstr;

class TrainCheckpoint : public test::TrainCommand {};

std::vector<float> values_of(const Checkpoint& checkpoint) {
  std::vector<float> values;
  for (const auto* tensors : {&checkpoint.parameters, &checkpoint.buffers}) {
    for (const auto& tensor : *tensors) {
      values.insert(values.end(), tensor.values.begin(), tensor.values.end());
    }
  }
  for (const auto& array : checkpoint.optimizer_state) {
    values.insert(values.end(), array.values.begin(), array.values.end());
  }
  return values;
}

TEST_F(TrainCheckpoint, GivesEqualBitsOnAnyNumberOfRanks) {
  std::vector<std::vector<float>> results;
  for (const char* ranks : {"1", "2", "4"}) {
    const ShellRun run =
        train("--bitwise --limit-steps 5 --epochs 1 --checkpoint " + path("bits") + " -n " + ranks);
    ASSERT_EQ(run.status, 0) << run.output;
    results.push_back(values_of(load_checkpoint(path("bits"))));
    EXPECT_EQ(results.back(), results.front()) << ranks;
  }
}

TEST_F(TrainCheckpoint, GoesOnExactlyWhereItStopped) {
  if (is_thread_sanitized()) GTEST_SKIP() << kNumbersAlone;
  for (const std::string flags : {"--strategy ddp -n 2", "--strategy zero1 -n 2",
                                  "--strategy dp -n 2", "--model cnn -n 2", "--bitwise -n 2"}) {
    const std::string common = flags + " --limit-steps 3 ";
    const ShellRun whole = train(common + "--epochs 4 --checkpoint " + path("whole"));
    const ShellRun half = train(common + "--epochs 2 --checkpoint " + path("half"));
    const ShellRun rest =
        train(common + "--epochs 4 --resume " + path("half") + " --checkpoint " + path("rest"));
    ASSERT_EQ(whole.status + half.status + rest.status, 0) << flags << rest.output;
    const Checkpoint at_once = load_checkpoint(path("whole")),
                     resumed = load_checkpoint(path("rest"));
    EXPECT_EQ(resumed.optimizer_steps, 12u);
    EXPECT_EQ(resumed.epoch, 4u);
    EXPECT_TRUE(values_of(at_once) == values_of(resumed)) << flags;
    EXPECT_FALSE(values_of(load_checkpoint(path("half"))) == values_of(resumed)) << flags;
  }
}

TEST_F(TrainCheckpoint, GoesOnInTheMiddleOfAnEpoch) {
  // The last checkpoint within an epoch is that of step 4; the end of the epoch is never reached.
  const std::string common = "-n 2 --epochs 1 ";
  const ShellRun whole = train(common + "--limit-steps 6 --checkpoint " + path("whole"));
  ASSERT_EQ(whole.status, 0) << whole.output;
  const ShellRun part = train(common + "--limit-steps 4 --checkpoint " + path("part"));
  ASSERT_EQ(part.status, 0) << part.output;
  Checkpoint middle = load_checkpoint(path("part"));
  middle.epoch = 0;
  middle.step = 4;
  save_checkpoint(path("middle"), middle);
  const ShellRun rest = train(common + "--limit-steps 6 --resume " + path("middle") +
                              " --checkpoint " + path("rest"));
  ASSERT_EQ(rest.status, 0) << rest.output;
  EXPECT_TRUE(values_of(load_checkpoint(path("whole"))) ==
              values_of(load_checkpoint(path("rest"))));
}

// `step` of a checkpoint counts steps of its batch, in its order.
TEST_F(TrainCheckpoint, GoesOnWithinAnEpochInTheSameStepsOnly) {
  const auto resume = [&](const std::string& arguments) {
    return train("--limit-steps 4 --resume " + path("middle") + " " + arguments);
  };
  ASSERT_EQ(train("--epochs 1 --limit-steps 4 --checkpoint " + path("part")).status, 0);
  Checkpoint middle = load_checkpoint(path("part"));
  EXPECT_EQ(middle.step_samples, 128u);
  EXPECT_EQ(middle.order, "shuffled");
  middle.epoch = 0;
  middle.step = 2;
  save_checkpoint(path("middle"), middle);
  for (const char* other : {"--batch 256", "--bitwise"}) {
    const ShellRun run = resume(other);
    EXPECT_EQ(run.status, 1) << other;
    EXPECT_THAT(run.output, HasSubstr("after 2 steps of 128 samples (shuffled); steps of"));
  }
  for (const char* same : {"-n 4", "--accumulate 2", "--strategy dp"}) {
    const ShellRun run = resume(std::string("--epochs 1 ") + same);
    EXPECT_EQ(run.status, 0) << same << run.output;
    EXPECT_EQ(log("epoch").back()["steps"], 2) << same;
  }
  // Between epochs nothing was skipped.
  EXPECT_EQ(train("--limit-steps 4 --epochs 2 --batch 256 --resume " + path("part")).status, 0);
}

// The ranks that were left take steps of another batch, and their job may end as a whole.
TEST_F(TrainCheckpoint, GoesOnWithinAnEpochOfFewerElasticRanks) {
  ASSERT_EQ(train("--epochs 1 --limit-steps 2 --checkpoint " + path("part")).status, 0);
  Checkpoint middle = load_checkpoint(path("part"));
  middle.epoch = 0;
  middle.step = 2;
  middle.step_samples = 126;
  save_checkpoint(path("middle"), middle);
  const std::string resume = "--elastic -n 4 --epochs 1 --resume " + path("middle");
  const ShellRun run = train(resume + " --limit-steps 4");
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_EQ(log("epoch").back()["steps"], 3) << "two of 126 samples are one whole step of 128";
  const ShellRun none = train(resume + " --limit-steps 1");
  EXPECT_EQ(none.status, 1) << none.output;
  EXPECT_THAT(none.output, HasSubstr("leaves nothing to do"));
  middle.order = "another";
  save_checkpoint(path("middle"), middle);
  EXPECT_EQ(train(resume + " --limit-steps 4").status, 1);
}

// Earlier versions left out the longest lines always: their steps are others.
TEST_F(TrainCheckpoint, GoesOnWithinAnEpochOfSortedBatchesInItsOwnOrderOnly) {
  const std::string sorted = "--model gpt --sort-batches --limit-steps 2 --epochs 1 ";
  ASSERT_EQ(train(sorted + "--checkpoint " + path("part")).status, 0);
  Checkpoint middle = load_checkpoint(path("part"));
  middle.epoch = 0;
  middle.step = 1;
  save_checkpoint(path("middle"), middle);
  EXPECT_EQ(train(sorted + "--resume " + path("middle")).status, 0);
  middle.order = "--sort-batches";
  save_checkpoint(path("middle"), middle);
  const ShellRun run = train(sorted + "--resume " + path("middle"));
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.output, HasSubstr("after 1 steps of 128 samples (--sort-batches); steps of"));
}

TEST_F(TrainCheckpoint, RefusesToGoOnWhereNothingIsLeftOfTheLastEpoch) {
  ASSERT_EQ(train("--epochs 1 --limit-steps 3 --checkpoint " + path("part")).status, 0);
  Checkpoint middle = load_checkpoint(path("part"));
  middle.epoch = 0;
  middle.step = 3;
  save_checkpoint(path("middle"), middle);
  for (const char* steps : {"2", "3"}) {
    const std::string resume =
        "--resume " + path("middle") + " --limit-steps " + steps + " --epochs ";
    const ShellRun none = train(resume + "1");
    EXPECT_EQ(none.status, 1) << none.output;
    EXPECT_THAT(none.output,
                AllOf(HasSubstr("3 steps of epoch 1"), HasSubstr("leaves nothing to do")));
    // The next epoch is whole.
    const ShellRun next = train(resume + "2");
    ASSERT_EQ(next.status, 0) << next.output;
    EXPECT_EQ(log("epoch").back()["epoch"], 2);
    EXPECT_EQ(log("epoch").back()["steps"], std::stoi(steps));
  }
}

TEST_F(TrainCheckpoint, TakesACheckpointOfEveryStrategyAndNumberOfRanks) {
  if (is_thread_sanitized()) GTEST_SKIP() << kNumbersAlone;
  std::size_t number = 0;
  for (const std::string from : kStrategies) {
    const ShellRun saved =
        train("--strategy " + from + " --limit-steps 2 --epochs 1 --checkpoint " + path("from"));
    ASSERT_EQ(saved.status, 0) << from << saved.output;
    for (const std::string to : kStrategies) {
      const std::size_t pair = number++;
      if (is_anothers_case(pair + pair / std::size(kStrategies), 3)) continue;
      // Another number of ranks wherever there can be one.
      const std::string ranks = to == "single" ? "" : " -n 4";
      const ShellRun run =
          train("--strategy " + to + ranks + " --limit-steps 2 --epochs 2 --resume " +
                path("from") + " --checkpoint " + path("to"));
      ASSERT_EQ(run.status, 0) << from << " to " << to << "\n" << run.output;
      EXPECT_EQ(load_checkpoint(path("to")).optimizer_steps, 4u) << from << " to " << to;
    }
  }
}

// The loss of the step that makes the parameters infinite is a number still.
TEST_F(TrainCheckpoint, KeepsTheLastCheckpointWhereTheNextHasDiverged) {
  const std::string sgd = "--optimizer sgd --limit-steps 2 --checkpoint " + path("kept");
  ASSERT_EQ(train(sgd + " --epochs 1").status, 0);
  const Checkpoint kept = load_checkpoint(path("kept"));
  Checkpoint before = kept;
  for (auto& array : before.optimizer_state) std::ranges::fill(array.values, 3e38F);
  save_checkpoint(path("before"), before);
  const auto diverges = [&](const std::string& flags, const std::string& how) {
    const ShellRun run =
        train(sgd + " --lr 1000 --epochs 2 --resume " + path("before") + " " + flags);
    EXPECT_EQ(run.status, 1) << flags;
    EXPECT_THAT(run.output, AllOf(HasSubstr(how), HasSubstr("; lower --lr 1000"))) << flags;
    EXPECT_TRUE(values_of(load_checkpoint(path("kept"))) == values_of(kept)) << flags;
  };
  for (const std::string strategy : {"single", "ddp", "zero1"}) {
    diverges("--limit-steps 1 --strategy " + strategy, "after epoch 2");
    diverges("--checkpoint-every 1 --strategy " + strategy, "not finite after 3 steps");
  }
}

TEST_F(TrainCheckpoint, KeepsTheLastCheckpointWhereTheNextDoesNotFit) {
  const std::string one_step = "--epochs 1 --limit-steps 1 --checkpoint " + path("kept");
  ASSERT_EQ(train(one_step).status, 0);
  const std::vector<float> before = values_of(load_checkpoint(path("kept")));
  for (const std::string strategy : {"single", "ddp"}) {
    const ShellRun run = run_line("trap '' XFSZ; ulimit -f 100; " + std::string(UNISONO_COMMAND) +
                                  " train --seed 2 --strategy " + strategy + " --output " +
                                  path("out") + " " + one_step);
    EXPECT_EQ(run.status, 1) << strategy;
    EXPECT_THAT(run.output, AllOf(HasSubstr("no checkpoint was saved"), HasSubstr("kept.tmp"),
                                  HasSubstr("the previous one, if any, is unchanged")));
    EXPECT_TRUE(values_of(load_checkpoint(path("kept"))) == before) << strategy;
  }
}

}  // namespace
}  // namespace unisono::train
