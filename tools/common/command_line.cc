#include "tools/common/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "tools/common/output.h"

namespace unisono::tools {
namespace {

// Where `words` are "<name><middle><value>".
struct Parts {
  std::string_view name, value;
};
std::optional<Parts> split(std::string_view words, std::string_view middle) {
  const std::size_t at = words.find(middle);
  if (at == words.npos) return std::nullopt;
  return Parts{words.substr(0, at), words.substr(at + middle.size())};
}

// "1.000000" is what CLI11 makes of a bound of 1.
std::string_view without_zeros(std::string_view number) {
  if (number.find('.') == number.npos) return number;
  number = number.substr(0, number.find_last_not_of('0') + 1);
  return number.substr(0, number.find_last_not_of('.') + 1);
}

// "Value 0 not in range 1 to 4096" behind the name, in the words of sizes.h.
std::optional<std::string> words_of_range(std::string_view words) {
  const auto named = split(words, ": Value ");
  const auto ranged = named ? split(named->value, " not in range ") : std::nullopt;
  const auto bounds = ranged ? split(ranged->value, " to ") : std::nullopt;
  if (!bounds) return std::nullopt;
  return fmt::format("{}: {} is outside {} to {}", named->name, ranged->name.substr(0, 64),
                     without_zeros(bounds->name), without_zeros(bounds->value));
}

}  // namespace

std::string words_of(const CLI::ParseError& error) {
  constexpr std::string_view kConversion = "Could not convert: ";
  const std::string_view words = error.what();
  if (words.starts_with(kConversion)) {
    if (const auto named = split(words.substr(kConversion.size()), " = ")) {
      return fmt::format("{}: '{}' is not a number that it takes", named->name,
                         named->value.substr(0, 64));
    }
  }
  if (auto range = words_of_range(words)) return *std::move(range);
  const auto missing = split(words, ": 1 required ");
  if (missing && missing->value.ends_with(" missing")) {
    return fmt::format("{}: its value is missing", missing->name);
  }
  return std::string(words);
}

std::string refuse_nan(const std::string& text) {
  return std::isnan(std::strtod(text.c_str(), nullptr)) ? text.substr(0, 64) + " is no number" : "";
}

int finish_parsing(CLI::App& app, const CLI::ParseError& error) {
  const std::string command = app.get_name();
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    return finish_output(command, app.exit(error));
  }
  fmt::print(stderr, "{0}: {1}\nSee: {0} --help\n", command, words_of(error));
  return 2;
}

}  // namespace unisono::tools
