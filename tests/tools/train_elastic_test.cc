// A training outlives its ranks: whoever is killed, whenever, it ends with the steps, and as good,
// as one that nobody disturbs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>

#include "launcher.h"
#include "tests/support/seed.h"
#include "tests/support/watchdog.h"
#include "train_command.h"
#include "unisono/train/checkpoint.h"

namespace unisono::train {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int kEpochs = 16;
constexpr int kRanks = 3;
// Of 6,000 images in batches of 126, which is a whole number for 1, 2 and 3 ranks.
constexpr std::uint64_t kSteps = kEpochs * (6000 / 126);

class Elastic : public test::TrainCommand {
 protected:
  std::vector<std::string> command(int epochs = kEpochs) const {
    return {UNISONO_COMMAND,
            "train",
            "--elastic",
            "--epochs",
            std::to_string(epochs),
            "--data",
            *test::few_images(),
            "--output",
            output(),
            "--checkpoint",
            checkpoint()};
  }
  /// What `unisono run` is given to start it on kRanks ranks.
  std::vector<std::string> launched(const char* restarts, int epochs = kEpochs) const {
    std::vector<std::string> arguments = command(epochs);
    arguments.insert(arguments.begin(), {"-n", std::to_string(kRanks), "--max-restarts", restarts,
                                         "--no-prefix", "--"});
    return arguments;
  }
  std::string output() const { return path("out"); }
  std::string checkpoint() const { return path("checkpoint"); }
};

double accuracy_in(const std::string& output) {
  std::smatch found;
  const std::regex last(R"(\ntest accuracy ([0-9.]+) %)");
  return std::regex_search(output, found, last) ? std::stod(found[1]) : -1;
}

// Of the last set of them, as the log's end tells.
int ranks_at_the_end(const std::string& output_folder) {
  std::ifstream log(output_folder + "/log.jsonl");
  int ranks = 0;
  for (std::string line; std::getline(log, line);) {
    if (line.find("\"event\":\"start\"") != std::string::npos) ranks = 0;
    if (line.find("\"event\":\"cost\"") != std::string::npos) ++ranks;
  }
  return ranks;
}

int count_logged(const std::string& output_folder, const std::string& event) {
  std::ifstream log(output_folder + "/log.jsonl");
  int count = 0;
  for (std::string line; std::getline(log, line);) {
    if (line.find("\"event\":\"" + event + "\"") != std::string::npos) ++count;
  }
  return count;
}

// 0: it did not come in time.
pid_t pid_of(const run::Launcher& job, int rank) {
  pid_t pid = 0;
  static_cast<void>(run::eventually([&] {
    const std::map<int, pid_t> ranks = ranks_of(job);
    const auto found = ranks.find(rank);
    if (found != ranks.end()) pid = found->second;
    return pid > 0;
  }));
  return pid;
}

TEST_F(Elastic, EndsAsOneThatNobodyDisturbs) {
  if (test::is_thread_sanitized()) {
    GTEST_SKIP()
        << "its subject is numbers: the thread sanitizer sees the same threads in run_test";
  }
  std::vector<std::string> plain = command();
  plain.insert(plain.end(), {"-n", std::to_string(kRanks)});
  std::string line;
  for (const std::string& word : plain) line += word + " ";
  const test::ShellRun undisturbed = test::run_shell(line + "2>&1");
  ASSERT_EQ(undisturbed.status, 0) << undisturbed.output;
  ASSERT_EQ(load_checkpoint(checkpoint()).optimizer_steps, kSteps);

  const test::SeedTrace seed_trace;
  std::mt19937_64 random = test::random_stream(21);
  int starts = 1;
  run::Launcher job(launched("20"), {.merge_stderr = true});
  for (const int epoch : {1, 3, 5}) {
    ASSERT_TRUE(job.prints("epoch " + std::to_string(epoch) + "/16")) << job.out();
    const auto victim = static_cast<int>(test::below(random, kRanks));
    const pid_t pid = pid_of(job, victim);
    ASSERT_GT(pid, 0) << job.out();
    ::kill(pid, SIGKILL);
    // The two that are left, and all three again.
    starts += 2;
    ASSERT_TRUE(run::eventually([&] { return count_logged(output(), "start") >= starts; }))
        << job.out();
  }
  EXPECT_EQ(job.wait(), 0) << job.out();
  EXPECT_THAT(job.out(), HasSubstr("of 3 ranks"));
  // Those that were killed are in again at the end, and nobody had to begin anew.
  EXPECT_THAT(job.out(), Not(HasSubstr("starting all ranks")));
  EXPECT_EQ(ranks_at_the_end(output()), kRanks) << job.out();
  // Steps are neither lost nor taken twice.
  EXPECT_EQ(load_checkpoint(checkpoint()).optimizer_steps, kSteps) << job.out();
  EXPECT_NEAR(accuracy_in(job.out()), accuracy_in(undisturbed.output), 3) << job.out();
  EXPECT_GT(accuracy_in(undisturbed.output), 70);
}

TEST_F(Elastic, GoesOnFromItsCheckpointWhenAllAreStartedAgain) {
  if (test::is_thread_sanitized()) GTEST_SKIP() << "as the one above";
  run::Launcher job(launched("20"), {.merge_stderr = true});
  ASSERT_TRUE(job.prints("epoch 3/16")) << job.out();
  ASSERT_TRUE(run::eventually([&] { return ranks_of(job).size() == kRanks; })) << job.out();
  const std::map<int, pid_t> ranks = ranks_of(job);
  // None of them is to go on, or to let another one in, meanwhile.
  for (const int signal : {SIGSTOP, SIGKILL}) {
    for (const auto& [rank, pid] : ranks) ::kill(pid, signal);
  }
  EXPECT_EQ(job.wait(), 0) << job.out();
  const std::string& out = job.out();
  EXPECT_THAT(out, HasSubstr("starting all ranks again"));
  EXPECT_EQ(out.find("epoch 1/16  train"), out.rfind("epoch 1/16  train")) << out;
  EXPECT_EQ(load_checkpoint(checkpoint()).optimizer_steps, kSteps) << out;
}

TEST_F(Elastic, LetsThemBackInWhereAnEpochHasOneStep) {
  if (test::is_thread_sanitized()) GTEST_SKIP() << "as the first one";
  std::vector<std::string> arguments = launched("1", 100'000);
  arguments.insert(arguments.end(), {"--limit-steps", "1"});
  run::Launcher job(arguments, {.merge_stderr = true});
  ASSERT_TRUE(job.prints("epoch 2/")) << job.out();
  const pid_t pid = pid_of(job, 1);
  ASSERT_GT(pid, 0) << job.out();
  ::kill(pid, SIGKILL);
  // All together, the two that are left, all together again.
  EXPECT_TRUE(run::eventually([&] { return count_logged(output(), "start") == 3; }))
      << count_logged(output(), "start");
  job.signal(SIGTERM);
  EXPECT_NE(job.wait(), 0);
}

// Rank 0 dies as it writes the checkpoint of the last epoch, once. Over TCP it makes no other file
// of that size, nor memory that counts as one.
TEST_F(Elastic, SavesWhatAFailureKeptFromBeingSaved) {
  std::string line = "[ $RANK != 0 ] || [ -e " + path("died") + " ] || { touch " + path("died") +
                     "; ulimit -c 0; ulimit -f 100; }; exec";
  for (const std::string& word : command(1)) line += " " + word;
  run::Launcher job(run::shell({"-n", std::to_string(kRanks), "--max-restarts", "1", "--no-prefix"},
                               line + " --transport tcp"),
                    {.merge_stderr = true});
  EXPECT_EQ(job.wait(), 0) << job.out();
  EXPECT_THAT(job.out(), HasSubstr("was ended by SIGXFSZ"));
  const Checkpoint saved = load_checkpoint(checkpoint());
  EXPECT_EQ(saved.epoch, 1u);
  EXPECT_EQ(saved.optimizer_steps, kSteps / kEpochs);
  for (const auto& entry : std::filesystem::directory_iterator(path(""))) {
    EXPECT_THAT(entry.path().string(), Not(HasSubstr(".tmp"))) << "what it had written";
  }
  // Who tells the result has not told the epoch's.
  EXPECT_GT(accuracy_in(job.out()), 20) << job.out();
  EXPECT_THAT(job.out(), HasSubstr(" % of 1,000 samples")) << job.out();
}

// As on machines of their own: each rank in a folder of its own, whose disk nobody shares.
class ElasticApart : public Elastic {
 protected:
  std::vector<std::string> apart(const std::vector<std::string>& flags) const {
    std::vector<std::string> arguments{"-n", "2", "--no-prefix"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return run::shell(arguments, "mkdir -p " + path("r$RANK") + " && cd " + path("r$RANK") +
                                     " && exec " + UNISONO_COMMAND +
                                     " train --elastic --output out --checkpoint c --epochs " +
                                     std::to_string(kEpochs) + " --data " + *test::few_images());
  }
  /// Kills rank 1 in its second epoch; both are together again before the end.
  void lose_rank_one_and_end() const {
    run::Launcher job(apart({"--max-restarts", "3"}), {.merge_stderr = true});
    ASSERT_TRUE(job.prints("epoch 1/16")) << job.out();
    const pid_t pid = pid_of(job, 1);
    ASSERT_GT(pid, 0) << job.out();
    ::kill(pid, SIGKILL);
    EXPECT_EQ(job.wait(), 0) << job.out();
    EXPECT_THAT(job.out(), Not(HasSubstr("cannot be opened")));
    EXPECT_EQ(count_logged(path("r0/out"), "start"), 3) << job.out();
    EXPECT_EQ(load_checkpoint(path("r0/c")).optimizer_steps, kEpochs * (6000 / 128));
    EXPECT_EQ(load_checkpoint(path("r0/c")).sampler_seed, 1u);
  }
};

TEST_F(ElasticApart, GoesOnWithoutTheDiskOfRankZero) {
  if (test::is_thread_sanitized()) GTEST_SKIP() << "as the first one";
  run::Launcher job(apart({"--keep-going"}), {.merge_stderr = true});
  ASSERT_TRUE(job.prints("epoch 1/16")) << job.out();
  const pid_t first = pid_of(job, 0);
  ASSERT_GT(first, 0) << job.out();
  ::kill(first, SIGKILL);
  job.wait();
  EXPECT_THAT(job.out(), HasSubstr("going on with 1 of 2 ranks"));
  EXPECT_GT(accuracy_in(job.out()), 70) << job.out();
  EXPECT_EQ(load_checkpoint(path("r1/c")).epoch, static_cast<std::uint64_t>(kEpochs));
}

TEST_F(ElasticApart, TakesBackARankThatHasNoCheckpoint) {
  if (test::is_thread_sanitized()) GTEST_SKIP() << "as the first one";
  lose_rank_one_and_end();
}

TEST_F(ElasticApart, TakesBackARankThatHasACheckpointOfAnotherTraining) {
  if (test::is_thread_sanitized()) GTEST_SKIP() << "as the first one";
  std::filesystem::create_directory(path("r1"));
  const test::ShellRun other =
      train("--seed 2 --epochs 1 --limit-steps 1 --checkpoint " + path("r1/c"));
  ASSERT_EQ(other.status, 0) << other.output;
  Checkpoint further = load_checkpoint(path("r1/c"));
  further.optimizer_steps = 100'000;
  save_checkpoint(path("r1/c"), further);
  lose_rank_one_and_end();
}

TEST_F(Elastic, RefusesWhatHasNotTheWholeStateOnEachRank) {
  for (const char* flags : {"--strategy zero1", "--strategy dp", "--device cuda", "--bitwise",
                            "--model gpt --sort-batches"}) {
    const test::ShellRun run =
        test::run_shell(std::string(UNISONO_COMMAND) + " train --elastic " + flags + " 2>&1");
    EXPECT_EQ(run.status, 2) << flags;
    EXPECT_THAT(run.output, HasSubstr("--elastic")) << flags;
  }
}

}  // namespace
}  // namespace unisono::train
