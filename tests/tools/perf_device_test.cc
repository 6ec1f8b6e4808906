// `unisono perf --memory cuda` on the fake driver: what it checks, what it prints, what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/collective.h"
#include "shell.h"

namespace unisono::test {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string kDriver =
    std::string("FAKE_CUDA_DELAY_US=0 UNISONO_CUDA_LIBRARY=") + UNISONO_PROGRAM_DRIVER + " ";

ShellRun perf(const std::string& arguments, const std::string& environment = kDriver) {
  return run_shell("env " + environment + " " + UNISONO_COMMAND + " perf " + arguments + " 2>&1");
}

constexpr const char* kSmall = " --memory cuda -b 1000 -e 1000 -I 2 -w 0 --timeout 60 ";

std::vector<nlohmann::json> rows_of(const std::string& output) {
  std::vector<nlohmann::json> rows;
  for (std::size_t at = 0; at < output.size();) {
    const std::size_t end = output.find('\n', at);
    rows.push_back(nlohmann::json::parse(output.substr(at, end - at)));
    at = end + 1;
  }
  return rows;
}

class PerfDevice : public testing::TestWithParam<std::string> {
 protected:
  static std::string verdict() {
    return GetParam() == "barrier" ? "# 1 row, not checked" : "every element right";
  }
};

TEST_P(PerfDevice, ChecksEveryElementOfThreads) {
  const ShellRun run = perf(GetParam() + kSmall + "-n 2 --as threads --buffers both");
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr(verdict()));
  EXPECT_THAT(run.output, HasSubstr("ranks are threads"));
  EXPECT_THAT(run.output, HasSubstr("transport auto, algorithm auto"));
}

TEST_P(PerfDevice, ChecksEveryElementOfProcesses) {
  const ShellRun run = perf(GetParam() + kSmall + "-n 3 -d bfloat16");
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_THAT(run.output, HasSubstr(verdict()));
  EXPECT_THAT(run.output, HasSubstr("ranks are processes"));
}

std::vector<std::string> names_of_cases() {
  std::vector<std::string> names{"p2p", "send_receive"};
  for (const CollectiveFacts& facts : collective_rows::kAll) {
    if (facts.is_collective()) names.emplace_back(facts.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Of, PerfDevice, testing::ValuesIn(names_of_cases()));

// A GPU is asked for all its hardware queues before CUDA is loaded, whoever the ranks are.
TEST(PerfDevices, HaveAllHardwareQueuesUnlessTheUserWantsOthers) {
  for (const std::string ranks_as : {"threads", "processes"}) {
    const std::string arguments = std::string("broadcast -n 2 --as ") + ranks_as + kSmall;
    for (const std::string given :
         {"-u CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_MAX_CONNECTIONS=1"}) {
      const ShellRun run = perf(arguments, given + " FAKE_CUDA_TRACE=1 " + kDriver);
      ASSERT_EQ(run.status, 0) << ranks_as;
      const bool has_all = run.output.find("with 32 hardware queues") != std::string::npos;
      const bool has_one = run.output.find("with 1 hardware queues") != std::string::npos;
      EXPECT_EQ(has_all, given.starts_with("-u")) << ranks_as << ", " << given;
      EXPECT_EQ(has_one, !given.starts_with("-u")) << ranks_as << ", " << given;
    }
  }
}

TEST(PerfDeviceCheck, FindsWhatKernelsLeaveUndone) {
  const ShellRun run = perf(std::string("all_reduce -n 2 --as threads --place out") + kSmall,
                            "PROGRAM_DRIVER=idle " + kDriver);
  EXPECT_EQ(run.status, 1) << run.output;
  // 250 elements on two ranks, looked at before and after the measurement.
  EXPECT_THAT(run.output, HasSubstr("1000 WRONG elements"));
}

TEST(PerfDeviceJson, HasTheKeysOfHostMemoryAndTheFloor) {
  const ShellRun run = perf(
      "all_reduce -n 2 --as threads --memory cuda --floor --json -b 64K -e 64K -I 3 -w 0 --mode "
      "both "
      "--timeout 60",
      "FAKE_CUDA_MEMORY=1G " + kDriver);
  ASSERT_EQ(run.status, 0) << run.output;
  auto rows = rows_of(run.output);
  ASSERT_EQ(rows.size(), 5u) << "hot and cold, out of place and in place, and the floor again";
  double best = 0;
  for (const char* when : {"begin", "end"}) {
    const nlohmann::json floor = rows.back()["floor"][when];
    EXPECT_GT(floor["driver_copy_GBps"], 0) << when;
    EXPECT_GT(floor["kernel_copy_GBps"], 0) << when;
    EXPECT_GT(floor["launch_us"], 0) << when;
  }
  for (const char* copy : {"driver_copy_GBps", "kernel_copy_GBps"}) {
    best = std::max(best, rows.back()["floor"]["begin"][copy].get<double>());
  }
  rows.pop_back();
  for (const nlohmann::json& row : rows) {
    for (const char* key :
         {"collective", "transport", "ranks",      "bytes",      "count",       "type",
          "op",         "in_place",  "time_us",    "algbw_GBps", "busbw_GBps",  "wrong",
          "mode",       "buffers",   "algorithm",  "loop_us",    "root",        "iterations",
          "memory",     "ranks_as",  "device",     "gpu_us",     "gpu_loop_us", "copy_GBps",
          "launch_us",  "floor_us",  "floor_ratio"}) {
      EXPECT_TRUE(row.contains(key)) << key;
    }
    EXPECT_EQ(row["memory"], "cuda");
    EXPECT_EQ(row["buffers"], "allocated");
    EXPECT_EQ(row["wrong"], 0);
    EXPECT_EQ(row["copy_GBps"], best) << "the better of the two copies";
    // Two ranks read and write each byte once.
    const double floor = 2 * 2 * 65536 / (row["copy_GBps"].get<double>() * 1e9) * 1e6;
    EXPECT_NEAR(row["floor_us"], floor, 0.001 + floor * 1e-3);
    EXPECT_NEAR(row["floor_ratio"].get<double>() * floor, row["gpu_loop_us"],
                0.002 + row["gpu_loop_us"].get<double>() * 0.1);
  }
}

TEST(PerfDeviceJson, HasNoFloorWhereNoneWasMeasuredOrDevicesAreSeveral) {
  const ShellRun unmeasured = perf(std::string("broadcast -n 2 --as threads --json") + kSmall);
  ASSERT_EQ(unmeasured.status, 0) << unmeasured.output;
  EXPECT_THAT(unmeasured.output, HasSubstr("gpu_loop_us"));
  EXPECT_THAT(unmeasured.output, Not(HasSubstr("floor_ratio")));
  const ShellRun several = perf(std::string("broadcast -n 2 --floor --json") + kSmall,
                                "FAKE_CUDA_DEVICES=2 FAKE_CUDA_MEMORY=256M " + kDriver);
  ASSERT_EQ(several.status, 0) << several.output;
  EXPECT_THAT(several.output, Not(HasSubstr("floor_ratio")));
}

TEST(PerfDeviceRefusal, SaysOnceWhyThereIsNoDevice) {
  const auto refuses = [](const std::string& environment, const std::string& because) {
    const ShellRun run = perf(std::string("all_reduce -n 2") + kSmall, environment);
    EXPECT_EQ(run.status, 1) << run.output;
    const std::size_t first = run.output.find(because);
    ASSERT_NE(first, std::string::npos) << run.output;
    EXPECT_EQ(run.output.find(because, first + 1), std::string::npos) << run.output;
  };
  refuses("UNISONO_CUDA=off", "UNISONO_CUDA=off");
  refuses("UNISONO_CUDA_LIBRARY=/no/such/libcuda.so.1", "/no/such/libcuda.so.1:");
  refuses("FAKE_CUDA_DEVICES=0 " + kDriver, "there is no GPU for --memory cuda: the driver");
}

TEST(PerfDeviceRefusal, NamesTheWrongArgument) {
  const auto refuses = [](const std::string& arguments, int status, const std::string& because) {
    const ShellRun run = perf("all_reduce -n 2 " + arguments);
    EXPECT_EQ(run.status, status) << run.output;
    EXPECT_THAT(run.output, HasSubstr(because));
  };
  refuses("--memory cuda --device 3", 1, "--device 3: the devices are 0 to 0");
  refuses("--memory cuda --device gpu", 2, "--device");
  refuses("--memory disk", 2, "--memory");
  refuses("--floor", 2, "--floor means something with --memory cuda alone");
  refuses("--device 0", 2, "--device means something with --memory cuda alone");
}

TEST(PerfDeviceHelp, TeachesGpuMemory) {
  const ShellRun run = perf("--help");
  EXPECT_EQ(run.status, 0);
  for (const char* word : {"--memory", "--device", "--floor", "--as", "x floor"}) {
    EXPECT_THAT(run.output, HasSubstr(word));
  }
}

}  // namespace
}  // namespace unisono::test
