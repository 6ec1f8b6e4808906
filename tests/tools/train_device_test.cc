// `unisono train --device cuda` as a user starts it, over the driver's double and a double of
// cuBLAS: every strategy, who takes which GPU, where batches wait, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launcher.h"
#include "tests/support/child_process.h"
#include "train_command.h"

namespace unisono::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::string kDoubles = std::string("FAKE_CUDA_DELAY_US=0 UNISONO_CUDA_LIBRARY=") +
                             UNISONO_PROGRAM_DRIVER +
                             " UNISONO_CUBLAS_LIBRARY=" + UNISONO_FAKE_CUBLAS + " ";
constexpr const char* kFew = " --limit-steps 3 --epochs 1 --batch 24 ";

class TrainDevice : public TrainCommand {
 protected:
  /// A command line behind "unisono ", with what it prints.
  ShellRun command(const std::string& line, const std::string& environment = "") const {
    return run_shell("env " + kDoubles + environment + " " + UNISONO_COMMAND + " " + line +
                     " 2>&1");
  }
  ShellRun train(const std::string& arguments, const std::string& environment = "") const {
    return command("train --output " + path("out") + kFew + arguments + few_images_for(arguments),
                   environment);
  }
  double test_loss() const { return log("end").at(0).at("test_loss"); }
};

class TrainDeviceStrategy : public TrainDevice, public testing::WithParamInterface<const char*> {};

TEST_P(TrainDeviceStrategy, EndsWhereTheHostEnds) {
  const std::string arguments = GetParam();
  const ShellRun on_host = train(arguments + " --device cpu");
  ASSERT_EQ(on_host.status, 0) << on_host.output;
  const double expected = test_loss();
  EXPECT_TRUE(log("device").empty());
  const ShellRun run = train(arguments + " --device cuda --device-map 0");
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_NEAR(test_loss(), expected, 1e-3);
  EXPECT_FALSE(log("device").empty());
  for (const nlohmann::json& cost : log("cost")) EXPECT_GT(cost.at("peak_memory"), 0);
}

INSTANTIATE_TEST_SUITE_P(Of, TrainDeviceStrategy,
                         testing::Values("--strategy single", "--strategy dp -n 2",
                                         "--strategy dp-balanced --devices 0,1 --gpu0-batch 8",
                                         "--strategy dp-criterion -n 3", "--strategy ddp -n 2",
                                         "--strategy ddp -n 2 --compress bf16 --accumulate 2",
                                         "--strategy ddp -n 2 --bitwise", "--strategy zero1 -n 2",
                                         "--model cnn --sync-bn -n 2",
                                         "--model gpt -n 2 --workers 1"));

TEST_F(TrainDevice, HasAllHardwareQueues) {
  unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
  for (const char* const arguments : {"--strategy single", "--strategy ddp -n 2"}) {
    const ShellRun run =
        train(std::string(arguments) + " --device cuda --device-map 0", "FAKE_CUDA_TRACE=1");
    ASSERT_EQ(run.status, 0) << arguments;
    EXPECT_NE(run.output.find("with 32 hardware queues"), std::string::npos) << arguments;
  }
}

TEST_F(TrainDevice, IsTheLocalRankOrWhatTheMapSays) {
  const std::string two = "FAKE_CUDA_DEVICES=2";
  ShellRun run = train("-n 2 --device cuda", two);
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("rank 0, world 2: cuda:0 (local rank 0)"),
                                HasSubstr("rank 1, world 2: cuda:1 (local rank 1)")));
  run = train("-n 2 --device cuda --device-map 1,0", two);
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("rank 1, world 2: cuda:0 (local rank 1)"));
  run = train("-n 2 --device cuda --device-map 0", "CUDA_VISIBLE_DEVICES=1 " + two);
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("rank 1, world 2: cuda:0 (local rank 1)"));
  run = train("--strategy dp --devices 1,0 --device cuda", two);
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output,
              AllOf(HasSubstr("device 1 of 2: cuda:1"), HasSubstr("device 0 of 2: cuda:0")));
}

// Two launchers as on two hosts with one GPU each: the second rank is the first of its host.
TEST_F(TrainDevice, IsNeverTheGlobalRank) {
  run::LaunchOptions options;
  options.environment = {"UNISONO_JOB_KEY=0123456789abcdef0123456789abcdef",
                         "UNISONO_PORT=" + std::to_string(free_port()), "FAKE_CUDA_DELAY_US=0",
                         std::string("UNISONO_CUDA_LIBRARY=") + UNISONO_PROGRAM_DRIVER,
                         std::string("UNISONO_CUBLAS_LIBRARY=") + UNISONO_FAKE_CUBLAS};
  const auto arguments = [&](const std::string& node) {
    return std::vector<std::string>{"--nnodes", "2",        "--node-rank",   node,       "-n",
                                    "1",        "--",       UNISONO_COMMAND, "train",    "--device",
                                    "cuda",     "--output", path(node),      "--epochs", "1",
                                    "--batch",  "24",       "--limit-steps", "3"};
  };
  run::Launcher first(arguments("0"), options);
  run::Launcher second(arguments("1"), options);
  EXPECT_EQ(first.wait(), 0) << first.err();
  EXPECT_EQ(second.wait(), 0) << second.err();
  EXPECT_THAT(first.out(), AllOf(HasSubstr("rank 0, world 2: cuda:0 (local rank 0)"),
                                 HasSubstr("rank 1, world 2: cuda:0 (local rank 0)")));
}

TEST_F(TrainDevice, ThatIsNotThereIsRefusedByName) {
  const ShellRun run = train("-n 2 --device cuda");
  EXPECT_NE(run.status, 0);
  EXPECT_THAT(run.output, AllOf(HasSubstr("rank 1 (local rank 1) cannot compute on cuda:1"),
                                HasSubstr("--device-map 0")));
  const ShellRun none = train("--strategy single --device cuda", "UNISONO_CUDA_LIBRARY=nowhere.so");
  EXPECT_NE(none.status, 0);
  EXPECT_THAT(none.output, HasSubstr("nowhere.so"));
  const ShellRun no_products =
      train("--strategy single --device cuda", "UNISONO_CUBLAS_LIBRARY=nowhere.so");
  EXPECT_NE(no_products.status, 0);
  EXPECT_THAT(no_products.output, AllOf(HasSubstr("cuBLAS"), HasSubstr("nowhere.so")));
}

TEST_F(TrainDevice, BelongsToItsOptions) {
  for (const char* arguments :
       {"--device-map 0", "--pin-memory on", "--device gpu", "--device cuda --device-map a",
        "--device cuda --device-map 0,", "--device cuda --pin-memory perhaps"}) {
    const ShellRun run = train(arguments);
    EXPECT_EQ(run.status, 2) << arguments << "\n" << run.output;
  }
}

TEST_F(TrainDevice, TakesBatchesFromPageLockedMemoryWhereItMay) {
  const std::string single = "--strategy single --device cuda ";
  ShellRun run = train(single);
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_TRUE(log("batches").at(0).at("page_locked"));
  EXPECT_THAT(run.output, HasSubstr("page-locked"));
  EXPECT_GT(log("batches").at(0).at("copy_seconds_page_locked"), 0);
  EXPECT_GT(log("batches").at(0).at("copy_seconds_pageable"), 0);

  run = train(single + "--pin-memory off");
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_FALSE(log("batches").at(0).at("page_locked"));

  const std::string little = "ulimit -l 64; exec ";
  run = run_shell(little + "env " + kDoubles + UNISONO_COMMAND + " train --output " + path("x") +
                  kFew + single + " 2>&1");
  ASSERT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr("limit of locked memory (64.0 KiB)"));
  run = run_shell(little + "env " + kDoubles + UNISONO_COMMAND + " train --output " + path("x") +
                  kFew + single + "--pin-memory on 2>&1");
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.output, AllOf(HasSubstr("--pin-memory on"), HasSubstr("ulimit -l")));
}

TEST_F(TrainDevice, MayChangeBetweenACheckpointAndItsResumption) {
  const std::string file = path("a.ckpt");
  const ShellRun there = train("--strategy single --device cuda --checkpoint " + file);
  ASSERT_EQ(there.status, 0) << there.output;
  const ShellRun here = train("--strategy ddp -n 2 --epochs 2 --resume " + file);
  EXPECT_EQ(here.status, 0) << here.output;
  const ShellRun again =
      train("--strategy zero1 -n 2 --device cuda --device-map 0 --epochs 2 --resume " + file);
  EXPECT_EQ(again.status, 0) << again.output;
}

TEST_F(TrainDevice, ComparesStrategiesByMemoryAndCalls) {
  const ShellRun run =
      command("train --compare --device cuda --device-map 0 -n 2 --batch 12 --limit-steps 3");
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, AllOf(HasSubstr("On GPUs 0"), HasSubstr("page-locked"),
                                HasSubstr("dp, output device 1"), HasSubstr("peak, first"),
                                HasSubstr("Bytes of gathered outputs"), HasSubstr("calls equal"),
                                HasSubstr("Outputs gathered as objects: 960 bytes, device memory "
                                          "that it took: 0"),
                                Not(HasSubstr("DIFFERS"))));
}

}  // namespace
}  // namespace unisono::test
