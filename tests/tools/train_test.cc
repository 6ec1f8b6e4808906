// `unisono train` as a user starts it: every strategy, what is refused, and what it prints and
// leaves behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "launcher.h"
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
using testing::Not;

using TrainCommand = test::TrainCommand;

TEST_F(TrainCommand, TrainsTheSameWithEveryStrategy) {
  std::vector<double> losses;
  for (const std::string strategy : kStrategies) {
    const ShellRun run =
        train("--strategy " + strategy + " --limit-steps 5 --epochs 1 --weight-decay 0");
    ASSERT_EQ(run.status, 0) << strategy << "\n" << run.output;
    const auto epochs = log("epoch");
    ASSERT_EQ(epochs.size(), 1u) << strategy;
    EXPECT_EQ(epochs[0]["steps"], 5);
    EXPECT_EQ(epochs[0]["test_samples"], 5 * 128) << "the same test on any number of ranks";
    losses.push_back(epochs[0]["train_loss"]);
    EXPECT_NEAR(losses.back(), losses.front(), 1e-4) << strategy;
  }
}

TEST_F(TrainCommand, TrainsWithEveryOptionOfAStrategy) {
  for (const char* arguments :
       {"--strategy dp --devices 4,7,9 --output-device 7", "--strategy dp-balanced --gpu0-batch 16",
        "--model cnn --sync-bn", "--compress fp16", "--compress bf16 --transport tcp",
        "--no-overlap --bucket 64K --find-unused", "--canonical -n 3 --batch 129",
        "--strategy zero1 --canonical", "--accumulate 4 --optimizer sgd --momentum 0.5",
        "--bitwise -n 4", "--checkpointing sqrt", "--load lazy --workers 1", "--load local",
        "--batch 256 --scale-lr linear --warm-up 2", "--model gpt --sort-batches --load local"}) {
    const ShellRun run = train(std::string(arguments) + " --limit-steps 2 --epochs 1");
    EXPECT_EQ(run.status, 0) << arguments << "\n" << run.output;
  }
}

TEST_F(TrainCommand, RefusesWhatHasNoMeaningBeforeAnythingStarts) {
  const auto refuses = [&](const std::string& arguments, const std::string& because) {
    const ShellRun run = train(arguments);
    EXPECT_EQ(run.status, 2) << arguments << "\n" << run.output;
    EXPECT_THAT(run.output, HasSubstr(because)) << arguments;
    EXPECT_FALSE(std::filesystem::exists(path("out"))) << arguments;
  };
  refuses("--strategy dpp", "--strategy");
  refuses("--model rnn", "--model");
  refuses("--lr 0", "--lr: '0' is not a positive number");
  refuses("--lr x", "--lr: 'x' is not a positive number");
  refuses("--lr nan", "--lr: 'nan' is not a positive number");
  refuses("--lr 1e9", "--lr: '1e9' is above the limit of 1000000;");
  refuses("--lr 1e99", "--lr: '1e99' is above the limit of 1000000;");
  refuses("--lr 1e-50", "--lr: '1e-50' is below the limit of 1.17");
  refuses("-n 0", "--ranks");
  refuses("--strategy single -n 2", "single is one rank");
  refuses("--strategy dp-balanced --gpu0-batch 129", "--gpu0-batch");
  refuses("--strategy dp-balanced --devices 0 --gpu0-batch 16", "--gpu0-batch");
  refuses("--strategy dp-balanced --model cnn --gpu0-batch 0", "--gpu0-batch 0: the batch norms");
  refuses("--gpu0-batch 16", "--gpu0-batch belongs to");
  refuses("--strategy dp --devices 0,1 --output-device 2", "--output-device 2 is not one of");
  refuses("--strategy dp --devices 0,1,0", "0 is there twice");
  refuses("--strategy dp --devices 0,x", "--devices");
  refuses("--strategy dp --compress fp16", "--compress belongs to --strategy ddp");
  refuses("--batch 127", "--batch 127 does not divide into 2 ranks of equal size; take 126");
  refuses("--batch 127 --accumulate 2", "does not divide into 2 ranks times 2 passes of");
  refuses("--bitwise -n 3", "1, 2, 4 or 8 ranks");
  refuses("--bitwise --batch 100", "8 micro-batches");
  refuses("--bitwise --accumulate 2", "--bitwise excludes --accumulate");
  refuses("--sync-bn", "has no batch norm");
  refuses("--model cnn --sync-bn --strategy dp", "--sync-bn");
  refuses("--sort-batches", "--sort-batches belongs to text");
  refuses("--model gpt --sort-batches --load lazy", "lazy has read none");
  refuses("--checkpoint-every 5", "needs --checkpoint");
}

TEST_F(TrainCommand, RefusesOptionsOfATrainingInAComparison) {
  for (const char* option :
       {"--checkpoint x", "--resume x", "--epochs 2", "--strategy ddp", "--bitwise"}) {
    const ShellRun run =
        run_line(std::string(UNISONO_COMMAND) + " train --compare --limit-steps 1 " + option);
    EXPECT_EQ(run.status, 2) << option;
    const std::string name = std::string(option).substr(0, std::string(option).find(' '));
    EXPECT_THAT(run.output, HasSubstr(name + " has no meaning with --compare")) << option;
  }
  const ShellRun ordered =
      run_line("UNISONO_ORDER=canonical " UNISONO_COMMAND " train --compare --limit-steps 1");
  EXPECT_EQ(ordered.status, 2);
  EXPECT_THAT(ordered.output, HasSubstr("train --compare: UNISONO_ORDER=canonical: "));
  const ShellRun run = train("--compare --epochs 2");
  EXPECT_EQ(run.status, 2);
  EXPECT_THAT(run.output, HasSubstr("--epochs, --output have no meaning"));
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

TEST_F(TrainCommand, CutsTheDefaultBatchToWhatDivides) {
  const ShellRun run = train("-n 3 --limit-steps 1 --epochs 1");
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("batch 126 over all ranks (the default of 128, rounded down"));
  EXPECT_EQ(log("start")[0]["batch"], 126);
}

TEST_F(TrainCommand, TellsOnceWhatBecameOfABalancedBatch) {
  const std::string common =
      "--strategy dp-balanced --load lazy --limit-steps 1 --epochs 1 --quiet ";
  const ShellRun uneven = train(common + "--gpu0-batch 16 --batch 53 --devices 0,1,2");
  ASSERT_EQ(uneven.status, 0) << uneven.output;
  const std::string what = "the remainder makes the largest 19 samples";
  const std::size_t first = uneven.output.find(what);
  ASSERT_NE(first, std::string::npos) << uneven.output;
  EXPECT_EQ(uneven.output.find(what, first + 1), std::string::npos) << uneven.output;
  ASSERT_EQ(log("note").size(), 1u);
  EXPECT_THAT(log("note")[0]["text"], HasSubstr(what));

  const ShellRun even = train(common + "--gpu0-batch 64 --json");
  ASSERT_EQ(even.status, 0) << even.output;
  const auto note = nlohmann::json::parse(even.output.substr(0, even.output.find('\n')));
  EXPECT_EQ(note["event"], "note");
  EXPECT_THAT(note["text"],
              HasSubstr("even chunks instead, 64, 64; balanced ones need at most 63"));

  const ShellRun above = train("--strategy dp-balanced --gpu0-batch 200");
  EXPECT_THAT(above.output, HasSubstr("larger than the batch of 128; give it at most 63"));
}

TEST_F(TrainCommand, TellsTheScaledLearningRate) {
  const ShellRun run = train(
      "--strategy single --load lazy --batch 256 --scale-lr linear --warm-up 3 --limit-steps 1 "
      "--epochs 1");
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("learning rate 0.0014: --lr 0.0007 for a batch of 128, scaled "
                                    "(linear), reached after 3 steps of warm-up"));
  const nlohmann::json start = log("start")[0];
  EXPECT_EQ(start["learning_rate"].dump(), "0.0007");
  EXPECT_EQ(start["scaled_learning_rate"].dump(), "0.0014");
  EXPECT_EQ(start["scale_lr"], "linear");
  EXPECT_EQ(start["warm_up"], 3);
}

TEST_F(TrainCommand, SaysOnceThatThereIsNoDriver) {
  const std::string no_driver = "UNISONO_CUDA_LIBRARY=nowhere.so " + std::string(UNISONO_COMMAND);
  const std::string line = " train --device cuda --output " + path("out");
  for (const std::string& command :
       {no_driver + line + " -n 3", no_driver + line + " --strategy dp -n 3",
        no_driver + " run -n 2 -- " + UNISONO_COMMAND + line}) {
    const ShellRun run = run_line(command);
    EXPECT_EQ(run.status, 1) << run.output;
    const std::size_t first = run.output.find("unisono train: ");
    ASSERT_NE(first, std::string::npos) << run.output;
    EXPECT_EQ(run.output.find("unisono train: ", first + 1), std::string::npos) << run.output;
  }
}

// None of torchrun's names is set under mpirun.
TEST_F(TrainCommand, KnowsItsPlaceUnderOtherLaunchers) {
  const auto as_rank = [&](const char* rank, const char* local_rank) {
    return run_line(std::string("OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_SIZE=2 ") +
                    "OMPI_COMM_WORLD_RANK=" + rank + " OMPI_COMM_WORLD_LOCAL_RANK=" + local_rank +
                    " " + UNISONO_COMMAND + " train --data " + path("nowhere"));
  };
  const ShellRun first_of_host = as_rank("2", "0"), second_of_host = as_rank("3", "1");
  EXPECT_EQ(first_of_host.status, 1);
  EXPECT_THAT(first_of_host.output, HasSubstr("unisono train: rank 2: "));
  EXPECT_EQ(second_of_host.status, 1);
  EXPECT_EQ(second_of_host.output, "") << "the first of the host speaks";
}

TEST_F(TrainCommand, KnowsNamesOfOtherTrainers) {
  const ShellRun run = train(
      "--nproc_per_node 3 --batch-size 129 --learning-rate 0.0003 --limit-steps 1 --epochs 1");
  ASSERT_EQ(run.status, 0) << run.output;
  const nlohmann::json start = log("start")[0];
  EXPECT_EQ(start["ranks"], 3);
  EXPECT_EQ(start["batch"], 129);
  EXPECT_EQ(start["learning_rate"].dump(), "0.0003");
}

TEST_F(TrainCommand, SaysWhatIsWrongWithFiles) {
  const auto fails = [&](const std::string& arguments, const testing::Matcher<std::string>& said) {
    const ShellRun run = train(arguments);
    EXPECT_EQ(run.status, 1) << arguments;
    EXPECT_THAT(run.output, said) << arguments;
  };
  fails("--data " + path("nowhere"), AllOf(HasSubstr("no such folder"), HasSubstr("--data")));
  fails("--model gpt --data " + path("nowhere"), HasSubstr("nowhere"));
  fails("--batch 60002", HasSubstr("no sample is left for a whole step"));
  fails("--resume " + path("nowhere"), HasSubstr("nowhere"));
  fails("--data " + path("nowhere") + " --checkpoint " + path("nowhere/a"),
        AllOf(HasSubstr("nowhere/a cannot be written"), HasSubstr("No such file")));
  fails("--checkpoint " + path(""), HasSubstr("Is a directory"));
  ASSERT_EQ(train("--limit-steps 1 --epochs 1 --checkpoint " + path("mlp")).status, 0);
  fails("--model cnn --resume " + path("mlp"), AllOf(HasSubstr("cnn 28x28"), HasSubstr("mlp 784")));
  fails("--epochs 1 --resume " + path("mlp"), HasSubstr("has trained 1 epoch, so --epochs 1"));
  fails("--epochs 2 --seed 9 --resume " + path("mlp"), HasSubstr("--seed 9 is not the 1"));
  fails("--epochs 2 --optimizer sgd --resume " + path("mlp"),
        HasSubstr("choose the same optimizer"));
  std::filesystem::resize_file(path("mlp"), 1000);
  fails("--epochs 2 --resume " + path("mlp"), HasSubstr("mlp"));
}

TEST_F(TrainCommand, RefusesATestOfOtherSamplesBeforeItTrains) {
  const auto refuses = [&](const std::string& model, const char* file, std::streamoff at,
                           const std::string& bytes, const std::string& said) {
    std::filesystem::remove_all(path("odd"));
    std::filesystem::copy(*test::few_images(), path("odd"));
    std::fstream(path("odd/") + file, std::ios::in | std::ios::out | std::ios::binary).seekp(at)
        << bytes;
    const ShellRun run = train("--epochs 1 --limit-steps 1 --data " + path("odd") + model);
    EXPECT_EQ(run.status, 1);
    EXPECT_THAT(run.output, AllOf(HasSubstr("28x28, 10 classes) cannot take"), HasSubstr(said)));
    EXPECT_FALSE(std::filesystem::exists(path("out")));
  };
  refuses("", "t10k-labels-idx1-ubyte", 8, "\n", "28x28, 11 classes)");
  refuses(" --model cnn", "t10k-images-idx3-ubyte", 8, std::string("\0\0\0\16\0\0\0\70", 8),
          "14x56, 10 classes)");
}

TEST_F(TrainCommand, MovesRunningStatisticsInTheSmallestBalancedBatch) {
  const ShellRun run = train(
      "--strategy dp-balanced --model cnn --batch 2 --epochs 1 --limit-steps 1 --checkpoint " +
      path("moved"));
  ASSERT_EQ(run.status, 0) << run.output;
  const Checkpoint moved = load_checkpoint(path("moved"));
  ASSERT_FALSE(moved.buffers.empty());
  for (const Checkpoint::NamedTensor& each : moved.buffers) {
    EXPECT_TRUE(std::ranges::any_of(each.values, [](float v) { return v != 0 && v != 1; }))
        << each.name;
  }
}

TEST_F(TrainCommand, KeepsTheDataWhereGnuplotIsMissing) {
  const ShellRun run = run_line("PATH=/nonexistent " + std::string(UNISONO_COMMAND) +
                                " train -n 2 --limit-steps 2 --epochs 1 --output " + path("out"));
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("gnuplot-nox"));
  for (const char* name : {"curve-loss.dat", "curve-epochs.dat", "curve.gp", "communication.dat"}) {
    EXPECT_TRUE(std::filesystem::exists(path("out/") + name)) << name;
  }
}

TEST_F(TrainCommand, LeavesNoChartOfTheRunBefore) {
  const ShellRun two = train("-n 2 --limit-steps 2 --epochs 1");
  ASSERT_EQ(two.status, 0) << two.output;
  ASSERT_TRUE(std::filesystem::exists(path("out/communication.dat")));
  const ShellRun one = train("--strategy single --limit-steps 2 --epochs 1");
  ASSERT_EQ(one.status, 0) << one.output;
  EXPECT_TRUE(std::filesystem::exists(path("out/curve.gp")));
  for (const auto& file : std::filesystem::directory_iterator(path("out"))) {
    EXPECT_NE(file.path().stem(), "communication") << file.path();
  }
  const ShellRun diverged = train("--strategy single --optimizer sgd --lr 1e6 --limit-steps 9");
  EXPECT_EQ(diverged.status, 1) << diverged.output;
  EXPECT_FALSE(std::filesystem::exists(path("out/curve.gp")));
}

TEST_F(TrainCommand, DrawsTheChartsAndWritesTheLog) {
  if (run_line("gnuplot --version").status != 0) GTEST_SKIP() << "no package gnuplot-nox";
  const ShellRun run = train("-n 2 --limit-steps 4 --epochs 2");
  ASSERT_EQ(run.status, 0) << run.output;
  for (const char* name : {"curve.svg", "communication.svg"}) {
    EXPECT_GT(std::filesystem::file_size(path("out/") + name), 1000u) << name;
  }
  EXPECT_EQ(log("epoch").size(), 2u);
  EXPECT_EQ(log("load").size(), 2u) << "one for each rank";
  ASSERT_EQ(log("cost").size(), 2u) << "one for each rank";
  // The broadcast that ddp begins with is none of a step.
  EXPECT_EQ(log("cost")[0]["calls_per_step"], nlohmann::json({{"all_reduce", 2}}));
  // 203,530 gradients of 4 bytes from each of two ranks, and 8 bytes of the loss.
  const double sent = log("cost")[0]["bytes_sent_per_step"]["all_reduce"];
  EXPECT_NEAR(sent, 203530 * 4 + 8, 8);
}

TEST_F(TrainCommand, DrawsTheEpochsBeforeIt) {
  const auto lines_of = [&](const char* name) {
    std::ifstream file(path(std::string("out/") + name));
    return std::count(std::istreambuf_iterator<char>(file), {}, '\n') - 1;
  };
  const std::string common = "--limit-steps 2 --epochs ";
  ASSERT_EQ(train(common + "2 --checkpoint " + path("two")).status, 0);
  ASSERT_EQ(train(common + "3 --resume " + path("two")).status, 0);
  EXPECT_EQ(lines_of("curve-epochs.dat"), 3);
  // What was trained twice is drawn once.
  ASSERT_EQ(train(common + "4 --resume " + path("two")).status, 0);
  EXPECT_EQ(lines_of("curve-epochs.dat"), 4);
  EXPECT_EQ(lines_of("curve-loss.dat"), 2 + 4) << "an epoch of the log is one point";
  const ShellRun fresh = train(common + "1");
  EXPECT_THAT(fresh.output, Not(HasSubstr("arning"))) << "of gnuplot";
  EXPECT_EQ(lines_of("curve-epochs.dat"), 1);
}

// As on a disk that was full.
TEST_F(TrainCommand, GoesOnInALogWhoseLastLineWasCutShort) {
  const std::string common = "--limit-steps 1 --checkpoint " + path("kept");
  ASSERT_EQ(train(common + " --epochs 1").status, 0);
  std::ofstream(path("out/log.jsonl"), std::ios::app) << R"({"event":"ep)";
  const ShellRun run = train(common + " --epochs 2 --resume " + path("kept"));
  ASSERT_EQ(run.status, 0) << run.output;
  std::ifstream log(path("out/log.jsonl"));
  std::map<std::string, int> events;
  for (std::string line; std::getline(log, line);) {
    const nlohmann::json parsed = nlohmann::json::parse(line, nullptr, false);
    ++events[parsed.is_discarded() ? "cut short" : parsed.at("event").get<std::string>()];
  }
  EXPECT_EQ(events["cut short"], 1);
  EXPECT_EQ(events["start"], 2);
  EXPECT_EQ(events["end"], 2);
}

// As after a failure in the test of an epoch.
TEST_F(TrainCommand, TellsNoTrainingLossWhereOthersHaveTakenTheSteps) {
  const std::string common = "--limit-steps 2 --checkpoint " + path("kept");
  ASSERT_EQ(train(common + " --epochs 1").status, 0);
  Checkpoint untested = load_checkpoint(path("kept"));
  untested.epoch = 0;
  untested.step = 2;
  save_checkpoint(path("untested"), untested);
  const ShellRun run = train(common + " --epochs 2 --elastic -n 2 --resume " + path("untested"));
  ASSERT_EQ(run.status, 0) << run.output;
  const std::vector<nlohmann::json> epochs = log("epoch");
  ASSERT_EQ(epochs.size(), 3u);
  EXPECT_EQ(epochs[1]["steps"], 0);
  EXPECT_TRUE(epochs[1]["train_loss"].is_null()) << epochs[1];
  EXPECT_GT(epochs[2]["train_loss"], 0);

  ASSERT_EQ(train(common + " --epochs 3 --resume " + path("kept")).status, 0);
  std::ifstream curve(path("out/curve-loss.dat"));
  std::vector<double> points;
  std::string line;
  for (std::getline(curve, line); std::getline(curve, line);) points.push_back(std::stod(line));
  EXPECT_THAT(points, testing::ElementsAre(1.5, 2.5, 3)) << "of the first epoch is none";
  std::ifstream tests(path("out/curve-epochs.dat"));
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>(tests), {}, '\n'), 1 + 3);
}

TEST_F(TrainCommand, PrintsTheLogAsJsonLines) {
  const std::string data = path("caf\xe9");  // which is no UTF-8
  std::filesystem::create_directory_symlink(*test::few_images(), data);
  const ShellRun run = train("--json -n 2 --limit-steps 2 --epochs 2 --data " + data);
  ASSERT_EQ(run.status, 0) << run.output;
  std::istringstream lines(run.output);
  std::vector<std::string> events;
  for (std::string line; std::getline(lines, line);) {
    events.push_back(nlohmann::json::parse(line).at("event"));
  }
  EXPECT_THAT(events, testing::ElementsAre("start", "epoch", "epoch", "load", "load", "cost",
                                           "cost", "end"));
}

TEST_F(TrainCommand, TellsOfEveryEpoch) {
  const ShellRun run = train("-n 2 --limit-steps 3 --epochs 2");
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("epoch 2/2  train loss"), HasSubstr("test accuracy"),
                                Not(HasSubstr("\033["))));
}

TEST_F(TrainCommand, OverwritesOneLineOnATerminal) {
  // `script` gives the command a terminal of its own.
  const ShellRun run =
      run_line("script -qec '" + std::string(UNISONO_COMMAND) +
               " train -n 2 --limit-steps 40 --epochs 2 --output " + path("out") + "' /dev/null");
  if (run.status == 127) GTEST_SKIP() << "no command script";
  ASSERT_EQ(run.status, 0) << run.output;
  const std::regex step(
      R"(epoch 1/2  step 1/40  [0-9,]+ samples/s  loss [0-9]+\.[0-9]{4}  [^\n]+ left)");
  EXPECT_TRUE(std::regex_search(run.output, step)) << run.output;
  EXPECT_THAT(run.output, HasSubstr("\033[1A\r\033[K"));
}

TEST_F(TrainCommand, ComparesQuietlyOnATerminalToo) {
  const auto compare = [](const std::string& flags) {
    const std::string line = " train --compare --model mlp --limit-steps 1" + flags;
    return run_line("script -qec '" + std::string(UNISONO_COMMAND) + line +
                    test::few_images_for(line) + "' /dev/null");
  };
  const ShellRun loud = compare("");
  if (loud.status == 127) GTEST_SKIP() << "no command script";
  ASSERT_EQ(loud.status, 0) << loud.output;
  EXPECT_THAT(loud.output, HasSubstr("\033[K"));
  const ShellRun quiet = compare(" --quiet");
  EXPECT_EQ(quiet.status, 0) << quiet.output;
  EXPECT_THAT(quiet.output, AllOf(HasSubstr("zero1"), Not(HasSubstr("\033[K"))));
}

TEST_F(TrainCommand, NamesTheRankThatFailed) {
  run::Launcher job({"-n", "2", "--", UNISONO_COMMAND, "train", "--epochs", "1000", "--output",
                     path("out"), "--checkpoint", path("kept"), "--checkpoint-every", "20"});
  ASSERT_TRUE(run::eventually([&] { return std::filesystem::exists(path("kept")); }));
  const pid_t victim = ranks_of(job)[1];
  ASSERT_GT(victim, 0);
  ::kill(victim, SIGKILL);
  EXPECT_NE(job.wait(), 0);
  EXPECT_THAT(job.err(), HasSubstr("rank 1"));
  EXPECT_NO_THROW(load_checkpoint(path("kept")));
}

TEST_F(TrainCommand, LeavesNothingBehindWhenInterrupted) {
  run::Launcher job({"-n", "2", "--", UNISONO_COMMAND, "train", "--epochs", "1000", "--output",
                     path("out"), "--checkpoint", path("kept"), "--checkpoint-every", "20"});
  ASSERT_TRUE(run::eventually([&] { return std::filesystem::exists(path("kept")); }));
  const std::vector<pid_t> children = run::children_of(job.pid());
  ASSERT_GE(children.size(), 2u);
  job.signal(SIGINT);
  EXPECT_NE(job.wait(), 0);
  EXPECT_TRUE(run::eventually([&] {
    return std::ranges::none_of(children, [](pid_t pid) { return run::is_alive(pid); });
  }));
  EXPECT_NO_THROW(load_checkpoint(path("kept")));
}

TEST_F(TrainCommand, ComparesEveryStrategyWithItsFormula) {
  const ShellRun run = run_line(std::string(UNISONO_COMMAND) +
                                " train --compare --model mlp --json --limit-steps 2");
  ASSERT_EQ(run.status, 0) << run.output;
  std::istringstream lines(run.output);
  nlohmann::json sizes;
  std::map<std::string, std::uint64_t> bytes;
  std::size_t phases = 0;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json one = nlohmann::json::parse(line);
    if (one.at("kind") == "comparison") sizes = one;
    if (one.at("kind") == "phase") ++phases;
    if (one.at("kind") != "strategy") continue;
    bytes[one.at("strategy")] = one.at("bytes");
    EXPECT_TRUE(one.at("as_predicted")) << line;
  }
  EXPECT_EQ(phases, 8u);
  ASSERT_EQ(sizes.value("devices", 0), 2) << run.output;
  const std::uint64_t parameters = sizes.at("parameters"), inputs = sizes.at("inputs"),
                      outputs = sizes.at("outputs");
  EXPECT_EQ(bytes.at("single"), 0u);
  // Half of the inputs, outputs and output gradients cross; parameters and gradients whole.
  EXPECT_EQ(bytes.at("dp"), 4 * (inputs / 2 + outputs / 2 + outputs / 2 + 2 * parameters));
  EXPECT_EQ(bytes.at("ddp"), 4 * 2 * parameters);
}

TEST_F(TrainCommand, ComparesOnAWorkloadThatMoreDevicesAreFasterWith) {
  const ShellRun run =
      run_line(std::string(UNISONO_COMMAND) + " train --compare -n 3 --limit-steps 1");
  ASSERT_EQ(run.status, 0) << run.output;
  const std::string first = run.output.substr(0, run.output.find("\n\n"));
  EXPECT_THAT(first,
              AllOf(HasSubstr("cnn 28x28x1"), HasSubstr("63 samples per step (the default of 64"),
                    HasSubstr("rounded down to divide)"), HasSubstr("the default here")));
  const ShellRun chosen = run_line(std::string(UNISONO_COMMAND) +
                                   " train --compare --json --model mlp --batch 53 -n 3 "
                                   "--limit-steps 1");
  ASSERT_EQ(chosen.status, 0) << chosen.output;
  EXPECT_THAT(chosen.output, AllOf(HasSubstr("\"samples\":53"), HasSubstr("\"kind\":\"note\""),
                                   Not(HasSubstr("unisono train"))));
}

TEST_F(TrainCommand, ComparesTwoDevicesOnOneCoreAndTrainsOnOneRank) {
  const auto train_on_one = [&](const std::string& arguments) {
    return run_line("taskset -c $(taskset -pc $$ | sed 's/.*: //; s/[-,].*//') " +
                    std::string(UNISONO_COMMAND) + " train --limit-steps 1 " + arguments +
                    test::few_images_for(arguments));
  };
  const ShellRun compared = train_on_one("--compare --model mlp --json");
  EXPECT_EQ(compared.status, 0) << compared.output;
  EXPECT_THAT(compared.output, HasSubstr("\"devices\":2"));
  const ShellRun trained = train_on_one("--epochs 1 --output " + path("out"));
  EXPECT_EQ(trained.status, 0) << trained.output;
  EXPECT_EQ(log("start").at(0)["ranks"], 1);
}

// Lines of four letters at random: 60 of 64 places are padding, which is learned in a few steps,
// and of the others hardly more than the newline can be.
TEST_F(TrainCommand, CountsNoPaddingAsRight) {
  if (is_thread_sanitized()) GTEST_SKIP() << kNumbersAlone;
  std::ofstream text(path("lines"));
  std::mt19937 random(7);
  for (int line = 0; line < 640; ++line) {
    for (int i = 0; i < 4; ++i) text << static_cast<char>('a' + random() % 16);
    text << '\n';
  }
  text.close();
  std::size_t number = 0;
  for (const std::string strategy : {"ddp", "dp", "single"}) {
    if (is_anothers_case(number++, 3)) continue;
    const ShellRun run = train("--model gpt --sort-batches --batch 32 --epochs 2 --data " +
                               path("lines") + " --strategy " + strategy);
    ASSERT_EQ(run.status, 0) << strategy << "\n" << run.output;
    const nlohmann::json epoch = log("epoch").back();
    EXPECT_LT(epoch["test_accuracy"], 0.5) << strategy;
    EXPECT_LT(epoch["test_loss"], 1) << strategy << ": the loss is of the padding too";
  }
}

TEST_F(TrainCommand, EndsOnEveryRankWhereTheDataAreMissing) {
  run::Launcher job({"-n", "2", "--", UNISONO_COMMAND, "train", "--data", path("nowhere")});
  EXPECT_EQ(job.wait(), 1);
  const std::string what = path("nowhere") + ": no such folder";
  EXPECT_THAT(job.err(), HasSubstr("unisono train: rank 0: " + what));
  EXPECT_EQ(job.err().find(what), job.err().rfind(what)) << job.err();
  EXPECT_THAT(job.err(), Not(HasSubstr("SIGTERM"))) << "a rank waited";
}

TEST_F(TrainCommand, NamesARankThatCannotReadOnce) {
  std::filesystem::copy(test::kAllImages, path("cut"));
  std::filesystem::resize_file(path("cut/train-images-idx3-ubyte.gz"), 1'000'000);
  const ShellRun run = train("-n 2 --data " + path("cut"));
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.output, AllOf(HasSubstr("unisono train: rank 0 could not load its samples"),
                                Not(HasSubstr("rank 0: rank 0"))));
}

}  // namespace
}  // namespace unisono::train
