#include "comm/shared_settings.h"

#include <fmt/format.h>

#include <cstddef>

#include "base/fnv.h"

namespace unisono {
namespace {

// Of the 16 KiB that a rank may tell (rendezvous' kSettingsBytesMax).
constexpr std::size_t kRowsBytesMax = std::size_t{12} << 10;

std::string line_of_row(std::size_t number, const std::string& value) {
  return "UNISONO_TUNING row " + std::to_string(number) + "=" + value + "\n";
}

// The rows of the user's file come first and are shown; those that every rank has by itself follow.
std::string tuning_text(const algorithms::SelectionTable& selection) {
  std::string shown, others;
  std::size_t rows = 0;
  for (const algorithms::SelectionRow& row : selection.rows()) {
    const std::string text = to_text(row);
    const bool is_of_file = row.line > 0;
    std::string line = is_of_file ? line_of_row(rows + 1, text) : std::string();
    if (is_of_file && others.empty() && shown.size() + line.size() <= kRowsBytesMax) {
      shown += line;
      ++rows;
    } else {
      others += text + "\n";
    }
  }
  return shown + line_of_row(rows + 1, "none") +
         fmt::format("UNISONO_TUNING rows that are not shown={:016x}\n", fnv1a_64(others));
}

}  // namespace

std::string shared_settings(const Config& config, const algorithms::SelectionTable& selection) {
  std::string text;
  for (const char* name :
       {"UNISONO_TRANSPORT", "UNISONO_ALGORITHM", "UNISONO_MEASURE", "UNISONO_EAGER_BYTES",
        "UNISONO_ORDER", "UNISONO_SILENCE", "UNISONO_CHECKSUM", "UNISONO_LEVELS"}) {
    text += std::string(name) + "=" + value_text(config, name) + "\n";
  }
  return text + tuning_text(selection);
}

}  // namespace unisono
