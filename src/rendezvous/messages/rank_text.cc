#include "rendezvous/messages/rank_text.h"

#include <fmt/format.h>

#include <algorithm>

namespace unisono::rendezvous {
namespace {
// A message must stay readable when half of 4096 ranks are missing.
constexpr std::size_t kRanksShownMax = 16;
}  // namespace

std::string ranks_text(const std::vector<Rank>& ranks) {
  if (ranks.empty()) return "no rank";
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  const bool cut = ranks.size() > kRanksShownMax;
  const std::size_t listed = cut ? kRanksShownMax : ranks.size() - 1;
  std::string text = "ranks ";
  for (std::size_t i = 0; i < listed; ++i) text += fmt::format("{}{}", i ? ", " : "", ranks[i]);
  return cut ? text + fmt::format(" and {} more", ranks.size() - listed)
             : text + fmt::format(" and {}", ranks.back());
}

std::string member_text(const Member& member) {
  return fmt::format("rank {} (host {}, pid {})", member.rank, member.host_name, member.pid);
}

std::string duration_text(Duration duration) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(duration).count();
  if (ms < 1000) return fmt::format("{} ms", std::max<long long>(ms, 0));
  if (ms >= 1000 * 1000) return fmt::format("{} s", (ms + 500) / 1000);
  return fmt::format("{:.4g} s", static_cast<double>((ms + 50) / 100) / 10.0);
}

std::string shortened(std::string text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  text.resize(bytes_max >= 3 ? bytes_max - 3 : 0);
  return text + "...";
}

}  // namespace unisono::rendezvous
