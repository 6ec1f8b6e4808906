// Which algorithm a call runs: a readable table from (collective, link, ranks, bytes) to
// (algorithm, chunk size), filled by measurement and replaceable by a file (`unisono tune`).
// Only values that every rank of the communicator agrees on may enter.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/algorithm.h"
#include "base/result.h"

namespace unisono::algorithms {

/// What the lanes of a communicator are made of; the slowest kind when mixed.
enum class Link : std::uint8_t { kLoopback, kShm, kUnix, kTcp };
std::string_view name_of(Link link);

struct SelectionRequest {
  Collective collective = Collective::kBarrier;
  int ranks = 1;
  std::size_t bytes = 0;  ///< as nccl-tests count them; 0 where ranks do not agree on a size
  Link link = Link::kTcp;
  bool native = false;  ///< the communicator can run native collectives
  bool commutative = true;
  Order order = Order::kAny;
};

/// One row: the first that matches, and whose algorithm accepts the request, wins.
struct SelectionRow {
  Collective collective;
  bool any_link = true;
  Link link = Link::kTcp;
  int ranks_min = 1;
  int ranks_max = 1 << 20;
  std::size_t bytes_max = ~std::size_t{0};
  std::string algorithm;        ///< "native" or a name of the catalog
  std::size_t chunk_bytes = 0;  ///< blocks are cut into chunks of about this; 0: not cut
};

struct Choice {
  const Algorithm* algorithm = nullptr;  ///< null: native
  int chunks = 1;
  std::string reason;  ///< for `unisono info --why`; filled by explain() only
};

class SelectionTable {
 public:
  /// What was measured on the machines of the README.
  static SelectionTable defaults();
  /// Text as to_text() writes it; rows of the text come before the defaults. kInvalidArgument
  /// names the line and what is wrong with it.
  static Result<SelectionTable> from_text(std::string_view text);
  std::string to_text() const;

  /// `hint`: an algorithm's name or "native", empty for none. kUnsupported says why the hinted
  /// algorithm refuses, kInvalidArgument lists the known names.
  Result<Choice> choose(const SelectionRequest& request, std::string_view hint) const;
  std::string explain(const SelectionRequest& request, std::string_view hint) const;

  const std::vector<SelectionRow>& rows() const { return rows_; }
  void prepend(SelectionRow row) { rows_.insert(rows_.begin(), std::move(row)); }

 private:
  std::vector<SelectionRow> rows_;
};

}  // namespace unisono::algorithms
