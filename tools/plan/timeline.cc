#include "tools/plan/timeline.h"

#include <algorithm>
#include <utility>

namespace unisono::tools {
namespace {

constexpr std::size_t kColumn = 9;  // characters from one rank to the next

std::size_t column_of(Rank rank) { return static_cast<std::size_t>(rank) * kColumn; }

std::string label_of(const plan::TimedMessage& message) {
  const plan::ChunkRange& target = message.receive->target;
  if (target.count == 0) return "";
  std::string label = message.receive->kind == plan::StepKind::kReceiveReduce ? "+" : "";
  if (target.buffer == plan::Buffer::kScratch) label += "s";
  label += std::to_string(target.first);
  if (target.count > 1) label += ".." + std::to_string(target.first + target.count - 1);
  return label.size() <= kColumn - 4 ? label : "*";
}

// A line of arrows between the columns.
class Line {
 public:
  explicit Line(int ranks) : text_(column_of(ranks - 1) + 1, ' ') {
    for (Rank rank = 0; rank < ranks; ++rank) text_[column_of(rank)] = '|';
  }

  /// False when another arrow is in the way.
  bool add(const plan::TimedMessage& message) {
    const auto [low, high] = std::minmax(message.sender, message.receiver);
    for (const auto& [from, to] : taken_) {
      if (low < to && from < high) return false;
    }
    taken_.emplace_back(low, high);
    const std::size_t first = column_of(low) + 1;
    const std::size_t last = column_of(high) - 1;
    std::fill(text_.begin() + static_cast<std::ptrdiff_t>(first),
              text_.begin() + static_cast<std::ptrdiff_t>(last) + 1, '-');
    const bool up = message.sender < message.receiver;
    text_[up ? last : first] = up ? '>' : '<';
    const std::string label = label_of(message);
    text_.replace(up ? first + 1 : last - label.size(), label.size(), label);
    return true;
  }

  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::vector<std::pair<Rank, Rank>> taken_;
};

std::string draw_round(std::vector<const plan::TimedMessage*> messages, int ranks) {
  std::vector<Line> lines;
  for (const plan::TimedMessage* message : messages) {
    const auto fits = [&](Line& line) { return line.add(*message); };
    if (std::any_of(lines.begin(), lines.end(), fits)) continue;
    lines.emplace_back(ranks).add(*message);
  }
  std::string text;
  for (const Line& line : lines) text += "          " + line.text() + "\n";
  return text;
}

}  // namespace

std::string draw_timeline(const std::vector<plan::TimedMessage>& messages, int ranks) {
  std::string text = "rank      ";
  for (Rank rank = 0; rank < ranks; ++rank) {
    const std::string name = std::to_string(rank);
    text += name + (rank + 1 < ranks ? std::string(kColumn - name.size(), ' ') : "");
  }
  text += "\n";
  for (std::size_t first = 0; first < messages.size();) {
    std::vector<const plan::TimedMessage*> round;
    std::size_t end = first;
    for (; end < messages.size() && messages[end].start == messages[first].start; ++end) {
      round.push_back(&messages[end]);
    }
    std::string lines = draw_round(round, ranks);
    const std::string title = "round " + std::to_string(static_cast<int>(messages[first].start));
    text += lines.replace(0, title.size(), title);
    first = end;
  }
  return text;
}

}  // namespace unisono::tools
