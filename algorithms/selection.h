// Which algorithm a call runs: a readable table from (collective, link, ranks, ranks per core,
// bytes) to algorithm and access path, filled by measurement and replaceable by a file
// (`unisono tune`). Only values that every rank of the communicator agrees on decide between native
// and the plans; the access path alone is each owner's own.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "algorithms/algorithm.h"
#include "algorithms/cost_model.h"
#include "base/access_path.h"
#include "base/result.h"

namespace unisono::algorithms {

/// What the links of a communicator are made of; the slowest kind when mixed.
enum class Link : std::uint8_t { kLoopback, kShm, kUnix, kVerbs, kTcp };
std::string_view name_of(Link link);

struct SelectionRequest {
  Collective collective = Collective::kBarrier;
  int ranks = 1;
  std::size_t bytes = 0;  ///< as nccl-tests count them; 0 where ranks do not agree on a size
  Link link = Link::kTcp;
  bool shared_cores = false;  ///< more ranks than processors on some host
  bool native = false;        ///< the communicator can run native collectives
  bool commutative = true;
  Order order = Order::kAny;
  /// Where they are known they decide in place of the default table, as far as cost_model.h goes.
  LinkFacts links;
  /// UNISONO_ACCESS: unless automatic it replaces the path of every row.
  AccessPath access = AccessPath::kAutomatic;

  /// What an algorithm is asked about the call.
  plan::PlanRequest to_plan_request() const;
};

/// The column `cores`.
enum class Cores : std::uint8_t {
  kAny,
  kOwn,    ///< every rank has a processor of its own
  kShared  ///< more ranks on some host than processors
};
std::string_view name_of(Cores cores);

/// The bounds of a row for all ranks, for all sizes.
inline constexpr int kAnyRanks = 1 << 20;
inline constexpr std::size_t kAnySize = ~std::size_t{0};

/// One row: the first that matches, and whose algorithm accepts the request, wins.
struct SelectionRow {
  Collective collective = Collective::kBarrier;
  bool any_link = true;
  Link link = Link::kTcp;
  int ranks_min = 1;
  int ranks_max = kAnyRanks;
  Cores cores = Cores::kAny;
  std::size_t bytes_max = kAnySize;
  std::string algorithm;                     ///< "native" or a name of the catalog
  AccessPath path = AccessPath::kAutomatic;  ///< of native
  std::size_t chunk_bytes = 0;  ///< blocks are cut into chunks of about this; 0: not cut
  int line = 0;                 ///< of the file; 0: a row of the default table

  bool is_native() const { return algorithm == "native"; }
};

struct Choice {
  const Algorithm* algorithm = nullptr;  ///< null: native
  int chunks = 1;
  AccessPath path = AccessPath::kAutomatic;  ///< native: how others read this rank's buffers
  const SelectionRow* row = nullptr;         ///< the deciding row; null where none decided
  bool is_predicted = false;                 ///< the facts of the links decided
};

/// Sizes that share a decision, for calls without a hint whose order and operator are free.
struct NativeRange {
  std::size_t bytes_max = 0;
  bool native = false;
  AccessPath path = AccessPath::kAutomatic;
};

class SelectionTable {
 public:
  /// What was measured on the machines of the README.
  static SelectionTable defaults();
  /// Text as to_text() writes it; rows of the text come before the defaults. kInvalidArgument
  /// names the line and what is wrong with it. `origin` is the file's name, for explain().
  static Result<SelectionTable> from_text(std::string_view text, std::string origin = "");
  /// UNISONO_TUNING's file, the defaults alone when `path` is empty. Errors name the file too.
  static Result<SelectionTable> load(const std::string& path);
  std::string to_text() const;

  /// `hint`: an algorithm's name or "native", empty for none. kUnsupported says why the hinted
  /// algorithm refuses, kInvalidArgument lists the known names.
  Result<Choice> choose(const SelectionRequest& request, std::string_view hint) const;
  /// What choose() answers without a hint to `request` at every size, in ascending order; the last
  /// range has no bound. A call that may not use every algorithm (an order, an operator that does
  /// not commute) is native wherever this says so, because it refuses more rows of plans only.
  std::vector<NativeRange> native_ranges(SelectionRequest request) const;
  /// The choice and the row it comes from, for people.
  std::string explain(const SelectionRequest& request, std::string_view hint) const;

  const std::vector<SelectionRow>& rows() const { return rows_; }
  void append(SelectionRow row) { rows_.push_back(std::move(row)); }

 private:
  /// Without algorithm where none that can be predicted serves the call.
  Choice choose_predicted(const SelectionRequest& request) const;
  /// Null: none names it.
  const SelectionRow* first_row_of(const Algorithm& algorithm) const;
  Result<Choice> choose_native(const SelectionRequest& request) const;
  Result<Choice> choose_hinted(const SelectionRequest& request, std::string_view hint) const;

  std::string origin_;
  std::vector<SelectionRow> rows_;
};

/// Where there is none of that name: a sentence that says so, and ends with those that there are.
std::string no_algorithm_called(std::string_view name, Collective collective);
/// kInvalidArgument where no call may have this hint: a name of the catalogue, native, or auto.
Status check_hint(Collective collective, std::string_view hint);

/// The algorithms that settings ask for, by collective; empty: none.
using Hints = std::array<std::string, kCollectiveCount>;
/// UNISONO_ALGORITHM, "all_reduce=ring,broadcast=binomial". kInvalidArgument names the variable,
/// the entry and what it may be.
Result<Hints> parse_hints(const std::string& text);

/// A row as the table's text has it, without padding.
std::string to_text(const SelectionRow& row);

}  // namespace unisono::algorithms
