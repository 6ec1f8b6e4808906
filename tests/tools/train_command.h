// What the tests of `unisono train` have in common: the command, and a folder for what it leaves.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "few_images.h"
#include "shell.h"
#include "tests/support/temporary_folder.h"

namespace unisono::test {

inline constexpr const char* kStrategies[] = {"single",       "dp",  "dp-balanced",
                                              "dp-criterion", "ddp", "zero1"};
inline constexpr const char* kNumbersAlone =
    "its subject is numbers: the thread sanitizer sees the same threads in the other cases";

/// With what it complains of.
inline ShellRun run_line(const std::string& line) { return run_shell(line + " 2>&1"); }

class TrainCommand : public testing::Test {
 protected:
  void SetUp() override {
    if (few_images() == nullptr) {
      GTEST_SKIP() << "no package dataset-fashion-mnist in " << kAllImages;
    }
  }

  /// Into path("out").
  ShellRun train(const std::string& arguments) const {
    return run_line(std::string(UNISONO_COMMAND) + " train --output " + path("out") + " " +
                    arguments + few_images_for(arguments));
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  /// The lines of the log in path("out") with this event.
  std::vector<nlohmann::json> log(const std::string& event) const {
    std::ifstream file(path("out/log.jsonl"));
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(file, line);) {
      nlohmann::json parsed = nlohmann::json::parse(line);
      if (parsed.at("event") == event) lines.push_back(std::move(parsed));
    }
    return lines;
  }

 private:
  TemporaryFolder folder_;
};

}  // namespace unisono::test
