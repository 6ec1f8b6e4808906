// Where a rank records its last operations: the words of UNISONO_RECORDER. Values only; any thread.
#pragma once

#include <string>
#include <string_view>

namespace unisono {

struct RecordSetting {
  bool is_off = false;
  std::string folder;  ///< empty, and not off: in memory

  bool is_memory() const { return !is_off && folder.empty(); }
  bool operator==(const RecordSetting&) const = default;
};

inline std::string text_of(const RecordSetting& setting) {
  if (setting.is_off) return "off";
  return setting.folder.empty() ? "memory" : setting.folder;
}

/// Inverse of text_of(); empty text is memory. False, and nothing is set, where the text is neither
/// a word nor a directory, which has a '/' in its name so that a misspelt word is none.
inline bool parse(std::string_view text, RecordSetting* setting) {
  const bool is_off = text == "off", is_memory = text.empty() || text == "memory";
  const bool is_folder = text.find('/') != std::string_view::npos;
  if (!is_off && !is_memory && !is_folder) return false;
  *setting = {.is_off = is_off, .folder = std::string(is_folder ? text : "")};
  return true;
}

}  // namespace unisono
