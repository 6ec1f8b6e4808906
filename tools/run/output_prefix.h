// Cuts what one rank writes to one stream into whole lines, each marked with the rank, so that
// lines of different ranks never mix. Holds at most one unfinished piece; one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace unisono::run {

/// A line longer than this leaves in pieces: a rank that never ends its line must not fill memory.
inline constexpr std::size_t kPieceBytesMax = 64 * 1024;

class LineCutter {
 public:
  /// With an empty prefix bytes pass unchanged, in whole lines where lines are not too long.
  explicit LineCutter(std::string prefix) : prefix_(std::move(prefix)) {}

  /// Appends to `out` the lines that `bytes` complete.
  void add(std::string_view bytes, std::string* out);
  /// Appends the unfinished last line; the stream has ended.
  void finish(std::string* out);

 private:
  void emit_piece(std::string* out);

  std::string prefix_;
  std::string partial_;
};

/// "[ 3] ", as wide as the largest rank needs; in the rank's colour where wanted.
std::string rank_prefix(int rank, int world_size, bool coloured);

}  // namespace unisono::run
