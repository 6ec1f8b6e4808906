#include "tools/common/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string_view>

#include "tools/common/output.h"

namespace unisono::tools {
namespace {

// CLI11's words for text that is no number do not say so: "Could not convert: --ranks = abc".
std::string words_of(const CLI::ParseError& error) {
  constexpr std::string_view kConversion = "Could not convert: ";
  std::string words = error.what();
  const std::size_t equals = words.find(" = ");
  if (!words.starts_with(kConversion) || equals == std::string::npos) return words;
  const std::string name = words.substr(kConversion.size(), equals - kConversion.size());
  return fmt::format("{}: '{}' is not a number that it takes", name, words.substr(equals + 3, 64));
}

}  // namespace

int finish_parsing(CLI::App& app, const CLI::ParseError& error) {
  const std::string command = app.get_name();
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    return finish_output(command, app.exit(error));
  }
  fmt::print(stderr, "{0}: {1}\nSee: {0} --help\n", command, words_of(error));
  return 2;
}

}  // namespace unisono::tools
