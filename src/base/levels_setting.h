// By what the ranks of a host are grouped into domains: the words of UNISONO_LEVELS. Values only;
// any thread.
#pragma once

#include <array>
#include <bit>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

namespace unisono {

enum class LevelsBy : std::uint8_t {
  kAutomatic,  ///< nodes or else caches, where little crosses between them
  kOff,        ///< nothing
  kNodes,      ///< NUMA nodes
  kCaches,     ///< third-level caches
  kCount,      ///< so many ranks that follow each other
};

inline constexpr std::array<std::string_view, 4> kLevelsNames{"auto", "off", "numa", "l3"};

struct LevelsSetting {
  LevelsBy by = LevelsBy::kAutomatic;
  int ranks = 0;  ///< of kCount, a power of two

  bool operator==(const LevelsSetting&) const = default;
};

inline constexpr int kLevelsRanksMin = 2, kLevelsRanksMax = 128;

inline std::string text_of(const LevelsSetting& setting) {
  return setting.by == LevelsBy::kCount
             ? std::to_string(setting.ranks)
             : std::string(kLevelsNames[static_cast<std::size_t>(setting.by)]);
}

/// Inverse of text_of(). False, and nothing is set, where the text is neither a word nor a power of
/// two within the bounds above.
inline bool parse(std::string_view text, LevelsSetting* setting) {
  for (std::size_t i = 0; i < kLevelsNames.size(); ++i) {
    if (kLevelsNames[i] != text) continue;
    *setting = {static_cast<LevelsBy>(i), 0};
    return true;
  }
  int ranks = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, ranks);
  if (error != std::errc() || rest != end || ranks < kLevelsRanksMin || ranks > kLevelsRanksMax ||
      !std::has_single_bit(static_cast<unsigned>(ranks))) {
    return false;
  }
  *setting = {LevelsBy::kCount, ranks};
  return true;
}

}  // namespace unisono
