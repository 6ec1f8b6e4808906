// The compiled kernels, as far as can be seen without a GPU.
#include <gtest/gtest.h>

#include <fstream>
#include <regex>
#include <string>

#include "tests/cuda/kernel_reports.h"
#include "train/cuda/launcher.h"

namespace unisono::test {
namespace {

/// Spilled registers are bytes through memory, which decide the speed.
TEST(TrainKernelImages, SpillNoRegisters) {
  const std::regex spills("(\\d+) bytes stack frame, (\\d+) bytes spill stores");
  int checked = 0;
  for (const char* family : {"elements", "layers"}) {
    std::ifstream report(kernel_report(UNISONO_TRAIN_KERNEL_IMAGES, family));
    ASSERT_TRUE(report.is_open()) << family;
    std::smatch match;
    for (std::string line; std::getline(report, line);) {
      if (!std::regex_search(line, match, spills)) continue;
      EXPECT_EQ(match[1], "0") << "a kernel of " << family << " has a stack";
      EXPECT_EQ(match[2], "0") << "a kernel of " << family << " spills";
      ++checked;
    }
  }
  EXPECT_GE(checked, static_cast<int>(train::KernelNumber::kCount));
}

}  // namespace
}  // namespace unisono::test
