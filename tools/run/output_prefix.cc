#include "tools/run/output_prefix.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "tools/common/terminal.h"

namespace unisono::run {

void LineCutter::add(std::string_view bytes, std::string* out) {
  while (!bytes.empty()) {
    if (partial_.size() == kPieceBytesMax && bytes.front() != '\n') emit_piece(out);
    const std::size_t room = kPieceBytesMax - partial_.size();
    // One byte more than fits: a newline right behind a full piece still belongs to it.
    const std::size_t newline = bytes.substr(0, room + 1).find('\n');
    if (newline == std::string_view::npos) {
      const std::size_t taken = std::min(room, bytes.size());
      partial_.append(bytes.substr(0, taken));
      bytes.remove_prefix(taken);
      continue;
    }
    out->append(prefix_).append(partial_).append(bytes.substr(0, newline + 1));
    partial_.clear();
    bytes.remove_prefix(newline + 1);
  }
}

void LineCutter::finish(std::string* out) {
  if (!partial_.empty()) emit_piece(out);
}

void LineCutter::emit_piece(std::string* out) {
  out->append(prefix_).append(partial_);
  if (!prefix_.empty()) out->push_back('\n');
  partial_.clear();
}

std::string rank_prefix(int rank, int world_size, bool coloured) {
  using tools::Colour;
  constexpr Colour kColours[] = {Colour::kCyan,    Colour::kGreen, Colour::kYellow,
                                 Colour::kMagenta, Colour::kBlue,  Colour::kRed};
  const auto width = std::to_string(std::max(world_size - 1, 0)).size();
  const std::string text = fmt::format("[{:>{}}]", rank, width);
  const Colour colour = kColours[static_cast<std::size_t>(rank) % std::size(kColours)];
  return tools::paint(text, colour, coloured) + " ";
}

}  // namespace unisono::run
