#include "algorithms/selection.h"

#include <algorithm>

#include "base/collective.h"

namespace unisono::algorithms {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

struct DefaultRow {
  Collective collective;
  int ranks_max;
  std::size_t bytes_max;
  std::string_view algorithm;
  std::size_t chunk_bytes;
};

// Plans, over any links; ranks that share memory run natively by the rows before. Latency decides
// below some tens of KiB, bytes on the wire above. Rows of one collective go from small to large
// and end with algorithms that serve every rank count, operator and order. They were measured over
// TCP and UNIX sockets; verbs, which is quicker, has the same until it is measured on a network.
constexpr DefaultRow kDefaults[]{
    // Of two ranks each sends as much as in a ring, in half the messages.
    {Collective::kAllReduce, 2, 512 * kKiB, "one_shot", 0},
    {Collective::kAllReduce, 3, 64 * kKiB, "one_shot", 0},
    {Collective::kAllReduce, kAnyRanks, 32 * kKiB, "recursive_doubling", 0},
    {Collective::kAllReduce, kAnyRanks, 256 * kKiB, "halving_doubling", 0},
    {Collective::kAllReduce, kAnyRanks, kAnySize, "ring", kMiB},
    {Collective::kAllReduce, kAnyRanks, kAnySize, "two_shot", kMiB},
    {Collective::kReduce, kAnyRanks, 256 * kKiB, "binomial", 0},
    {Collective::kReduce, kAnyRanks, kAnySize, "pipelined_chain", 512 * kKiB},
    {Collective::kReduce, kAnyRanks, kAnySize, "linear", kMiB},
    // Of two ranks nobody passes anything on.
    {Collective::kBroadcast, 2, kAnySize, "binomial", 0},
    {Collective::kBroadcast, kAnyRanks, 256 * kKiB, "binomial", 0},
    {Collective::kBroadcast, kAnyRanks, kAnySize, "pipelined_chain", 512 * kKiB},
    {Collective::kAllGather, kAnyRanks, 64 * kKiB, "bruck", 0},
    {Collective::kAllGather, kAnyRanks, kAnySize, "ring", kMiB},
    {Collective::kAllGatherV, kAnyRanks, kAnySize, "ring", 0},
    {Collective::kReduceScatter, kAnyRanks, 64 * kKiB, "direct", 0},
    {Collective::kReduceScatter, kAnyRanks, kAnySize, "ring", kMiB},
    {Collective::kReduceScatter, kAnyRanks, kAnySize, "direct", kMiB},
    {Collective::kReduceScatterV, kAnyRanks, kAnySize, "ring", kMiB},
    {Collective::kReduceScatterV, kAnyRanks, kAnySize, "direct", kMiB},
    {Collective::kGather, kAnyRanks, 64 * kKiB, "binomial", 0},
    {Collective::kGather, kAnyRanks, kAnySize, "linear", 0},
    {Collective::kGatherV, kAnyRanks, kAnySize, "linear", 0},
    {Collective::kScatter, kAnyRanks, 64 * kKiB, "binomial", 0},
    {Collective::kScatter, kAnyRanks, kAnySize, "linear", 0},
    {Collective::kScatterV, kAnyRanks, kAnySize, "linear", 0},
    {Collective::kAllToAll, 8, kAnySize, "pairwise", 0},
    {Collective::kAllToAll, kAnyRanks, 16 * kKiB, "bruck", 0},
    {Collective::kAllToAll, kAnyRanks, kAnySize, "pairwise", 0},
    {Collective::kAllToAllV, kAnyRanks, kAnySize, "pairwise", 0},
    {Collective::kBarrier, kAnyRanks, kAnySize, "dissemination", 0},
    {Collective::kScan, kAnyRanks, kAnySize, "recursive_doubling", 0},
    {Collective::kScan, kAnyRanks, kAnySize, "direct", 0},
    {Collective::kExscan, kAnyRanks, kAnySize, "recursive_doubling", 0},
    {Collective::kExscan, kAnyRanks, kAnySize, "direct", 0},
};

// A file says what it says.
std::size_t chunk_bytes_of(const SelectionRow& row, const SelectionRequest& request) {
  return row.line == 0 ? chunk_bytes_within(row.chunk_bytes, request.links) : row.chunk_bytes;
}

int chunks_for(const SelectionRow& row, const SelectionRequest& request) {
  if (row.chunk_bytes == 0) return 1;
  const std::size_t blocks =
      facts_of(request.collective).is_shared_out() ? static_cast<std::size_t>(request.ranks) : 1;
  const std::size_t block = request.bytes / blocks;
  return static_cast<int>(
      std::clamp<std::size_t>(block / chunk_bytes_of(row, request), 1, kChunksMax));
}

bool matches(const SelectionRow& row, const SelectionRequest& request) {
  return row.collective == request.collective && (row.any_link || row.link == request.link) &&
         request.ranks >= row.ranks_min && request.ranks <= row.ranks_max &&
         (row.cores == Cores::kAny || (row.cores == Cores::kShared) == request.shared_cores) &&
         request.bytes <= row.bytes_max;
}

AccessPath path_for(const SelectionRequest& request, const SelectionRow* row) {
  if (request.access != AccessPath::kAutomatic || row == nullptr) return request.access;
  return row->path;
}

}  // namespace

plan::PlanRequest SelectionRequest::to_plan_request() const {
  plan::PlanRequest request;
  request.collective = collective;
  request.ranks = ranks;
  request.commutative = commutative;
  request.order = order;
  return request;
}

SelectionTable SelectionTable::defaults() {
  SelectionTable table;
  for (int c = 0; c < static_cast<int>(Collective::kSend); ++c) {
    SelectionRow native;
    native.collective = static_cast<Collective>(c);
    native.any_link = false;
    native.link = Link::kShm;
    native.algorithm = "native";
    table.rows_.push_back(std::move(native));
  }
  for (const DefaultRow& row : kDefaults) {
    SelectionRow made;
    made.collective = row.collective;
    made.ranks_max = row.ranks_max;
    made.bytes_max = row.bytes_max;
    made.algorithm = std::string(row.algorithm);
    made.chunk_bytes = row.chunk_bytes;
    table.rows_.push_back(std::move(made));
  }
  return table;
}

Result<Choice> SelectionTable::choose(const SelectionRequest& request,
                                      std::string_view hint) const {
  if (hint == "native") return choose_native(request);
  if (!hint.empty()) return choose_hinted(request, hint);
  const plan::PlanRequest plan_request = request.to_plan_request();
  for (const SelectionRow& row : rows_) {
    if (!matches(row, request)) continue;
    if (row.is_native()) {
      if (request.native) return Choice{nullptr, 1, path_for(request, &row), &row};
      continue;
    }
    if (row.line == 0 && request.links.are_known() && is_predicted(request.collective)) {
      const Choice predicted = choose_predicted(request);
      if (predicted.algorithm != nullptr) return predicted;
    }
    const Algorithm* algorithm = find(request.collective, row.algorithm);
    if (algorithm == nullptr || !algorithm->refuses(plan_request).empty()) continue;
    return Choice{algorithm, chunks_for(row, request), AccessPath::kAutomatic, &row};
  }
  for (const Algorithm& algorithm : catalog()) {
    if (algorithm.collective == request.collective && algorithm.refuses(plan_request).empty()) {
      return Choice{&algorithm};
    }
  }
  return Status(ErrorCode::kUnsupported, "no algorithm of " +
                                             std::string(unisono::name_of(request.collective)) +
                                             " serves this operator and order on " +
                                             std::to_string(request.ranks) + " ranks");
}

// An algorithm to whose path chunks are nothing is cut as its row says: it reduces what has come
// while the rest is under way.
Choice SelectionTable::choose_predicted(const SelectionRequest& request) const {
  const Prediction fastest =
      predict_fastest(request.to_plan_request(), request.bytes, request.links);
  if (fastest.algorithm == nullptr) return {};
  Choice choice{.algorithm = fastest.algorithm, .chunks = fastest.chunks, .is_predicted = true};
  const SelectionRow* const row = first_row_of(*fastest.algorithm);
  if (fastest.chunks == 1 && row != nullptr) choice.chunks = chunks_for(*row, request);
  return choice;
}

const SelectionRow* SelectionTable::first_row_of(const Algorithm& algorithm) const {
  const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const SelectionRow& candidate) {
    return candidate.collective == algorithm.collective && candidate.algorithm == algorithm.name;
  });
  return row == rows_.end() ? nullptr : &*row;
}

// Asked for: the rows only say by which path.
Result<Choice> SelectionTable::choose_native(const SelectionRequest& request) const {
  if (!request.native) {
    return Status(ErrorCode::kUnsupported,
                  "algorithm native needs all ranks on one host with shared memory");
  }
  const auto row = std::find_if(rows_.begin(), rows_.end(), [&](const SelectionRow& candidate) {
    return candidate.is_native() && matches(candidate, request);
  });
  const SelectionRow* found = row == rows_.end() ? nullptr : &*row;
  return Choice{nullptr, 1, path_for(request, found), found};
}

std::string no_algorithm_called(std::string_view name, Collective collective) {
  return "no " + std::string(unisono::name_of(collective)) + " algorithm is called '" +
         std::string(name.substr(0, 64)) + "'; choose one of: " + names_of(collective);
}

Status check_hint(Collective collective, std::string_view hint) {
  const bool is_no_name = hint == "native" || hint == kAutomaticAlgorithm;
  if (is_no_name || find(collective, hint) != nullptr) return Status();
  return Status(ErrorCode::kInvalidArgument,
                no_algorithm_called(hint, collective) + ", native, auto");
}

// Asked for: the first row with its name says how blocks are cut.
Result<Choice> SelectionTable::choose_hinted(const SelectionRequest& request,
                                             std::string_view hint) const {
  UNISONO_TRY(check_hint(request.collective, hint));
  const Algorithm* algorithm = find(request.collective, hint);
  const std::string_view reason = algorithm->refuses(request.to_plan_request());
  if (!reason.empty()) {
    return Status(ErrorCode::kUnsupported, "algorithm " + std::string(hint) + " of " +
                                               std::string(unisono::name_of(request.collective)) +
                                               ": " + std::string(reason));
  }
  const SelectionRow* const row = first_row_of(*algorithm);
  if (row == nullptr) return Choice{algorithm};
  return Choice{algorithm, chunks_for(*row, request), AccessPath::kAutomatic, row};
}

std::vector<NativeRange> SelectionTable::native_ranges(SelectionRequest request) const {
  std::vector<std::size_t> bounds{kAnySize};
  for (const SelectionRow& row : rows_) {
    if (row.collective == request.collective) bounds.push_back(row.bytes_max);
  }
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  std::vector<NativeRange> ranges;
  for (const std::size_t bound : bounds) {
    request.bytes = bound;
    const Result<Choice> choice = choose(request, "");
    const bool native = choice && choice->algorithm == nullptr;
    const AccessPath path = native ? choice->path : AccessPath::kAutomatic;
    if (!ranges.empty() && ranges.back().native == native && ranges.back().path == path) {
      ranges.back().bytes_max = bound;
    } else {
      ranges.push_back({bound, native, path});
    }
  }
  return ranges;
}

}  // namespace unisono::algorithms
