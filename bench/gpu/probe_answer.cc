// Answers as lines.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/gpu/probe.h"

namespace unisono::gpu_probe {
namespace {

std::string& question_now() {
  static std::string name;
  return name;
}

void print(std::string_view what, nlohmann::ordered_json value) {
  nlohmann::ordered_json line;
  line["question"] = question_now();
  line["what"] = what;
  line["value"] = std::move(value);
  fmt::print("{}\n", line.dump());
  std::fflush(stdout);
}

}  // namespace

void set_question(std::string_view question) { question_now() = question; }
void answer(std::string_view what, double value) { print(what, value); }
void answer(std::string_view what, std::string_view text) { print(what, text); }

}  // namespace unisono::gpu_probe
