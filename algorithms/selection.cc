#include "algorithms/selection.h"

#include <algorithm>
#include <charconv>
#include <sstream>

namespace unisono::algorithms {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr std::size_t kAnySize = ~std::size_t{0};
constexpr int kChunksMax = 64;

struct DefaultRow {
  Collective collective;
  int ranks_max;
  std::size_t bytes_max;
  std::string_view algorithm;
  std::size_t chunk_bytes;
};

// Lanes are streams here (native collectives come before). Latency decides below some tens of KiB,
// bytes on the wire above. Rows of one collective go from small to large and end with algorithms
// that serve every rank count, operator and order.
constexpr DefaultRow kDefaults[]{
    {Collective::kAllReduce, 3, 64 * kKiB, "one_shot", 0},
    {Collective::kAllReduce, 1 << 20, 32 * kKiB, "recursive_doubling", 0},
    {Collective::kAllReduce, 1 << 20, 256 * kKiB, "halving_doubling", 0},
    {Collective::kAllReduce, 1 << 20, kAnySize, "ring", kMiB},
    {Collective::kAllReduce, 1 << 20, kAnySize, "two_shot", 0},
    {Collective::kAllReduce, 1 << 20, kAnySize, "one_shot", 0},
    {Collective::kReduce, 1 << 20, 256 * kKiB, "binomial", 0},
    {Collective::kReduce, 1 << 20, kAnySize, "pipelined_chain", 512 * kKiB},
    {Collective::kReduce, 1 << 20, kAnySize, "linear", 0},
    {Collective::kBroadcast, 1 << 20, 256 * kKiB, "binomial", 0},
    {Collective::kBroadcast, 1 << 20, kAnySize, "pipelined_chain", 512 * kKiB},
    {Collective::kAllGather, 1 << 20, 64 * kKiB, "bruck", 0},
    {Collective::kAllGather, 1 << 20, kAnySize, "ring", kMiB},
    {Collective::kAllGatherV, 1 << 20, kAnySize, "ring", 0},
    {Collective::kReduceScatter, 1 << 20, 64 * kKiB, "direct", 0},
    {Collective::kReduceScatter, 1 << 20, kAnySize, "ring", kMiB},
    {Collective::kReduceScatter, 1 << 20, kAnySize, "direct", 0},
    {Collective::kReduceScatterV, 1 << 20, kAnySize, "ring", kMiB},
    {Collective::kReduceScatterV, 1 << 20, kAnySize, "direct", 0},
    {Collective::kGather, 1 << 20, 64 * kKiB, "binomial", 0},
    {Collective::kGather, 1 << 20, kAnySize, "linear", 0},
    {Collective::kGatherV, 1 << 20, kAnySize, "linear", 0},
    {Collective::kScatter, 1 << 20, 64 * kKiB, "binomial", 0},
    {Collective::kScatter, 1 << 20, kAnySize, "linear", 0},
    {Collective::kScatterV, 1 << 20, kAnySize, "linear", 0},
    {Collective::kAllToAll, 8, kAnySize, "pairwise", 0},
    {Collective::kAllToAll, 1 << 20, 16 * kKiB, "bruck", 0},
    {Collective::kAllToAll, 1 << 20, kAnySize, "pairwise", 0},
    {Collective::kAllToAllV, 1 << 20, kAnySize, "pairwise", 0},
    {Collective::kBarrier, 1 << 20, kAnySize, "dissemination", 0},
    {Collective::kScan, 1 << 20, kAnySize, "recursive_doubling", 0},
    {Collective::kScan, 1 << 20, kAnySize, "linear", 0},
    {Collective::kExscan, 1 << 20, kAnySize, "recursive_doubling", 0},
    {Collective::kExscan, 1 << 20, kAnySize, "linear", 0},
};

bool cuts_by_rank(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kAllGather ||
         collective == Collective::kAllGatherV || collective == Collective::kReduceScatter ||
         collective == Collective::kReduceScatterV;
}

int chunks_for(const SelectionRow& row, const SelectionRequest& request) {
  if (row.chunk_bytes == 0) return 1;
  const std::size_t blocks =
      cuts_by_rank(request.collective) ? static_cast<std::size_t>(request.ranks) : 1;
  const std::size_t block = request.bytes / blocks;
  return static_cast<int>(std::clamp<std::size_t>(block / row.chunk_bytes, 1, kChunksMax));
}

plan::PlanRequest to_plan_request(const SelectionRequest& request) {
  plan::PlanRequest plan_request;
  plan_request.collective = request.collective;
  plan_request.ranks = request.ranks;
  plan_request.commutative = request.commutative;
  plan_request.order = request.order;
  return plan_request;
}

bool matches(const SelectionRow& row, const SelectionRequest& request) {
  return row.collective == request.collective && (row.any_link || row.link == request.link) &&
         request.ranks >= row.ranks_min && request.ranks <= row.ranks_max &&
         request.bytes <= row.bytes_max;
}

bool parse_number(std::string_view text, std::size_t* out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size();
}

Status parse_row(const std::vector<std::string>& words, SelectionRow* row) {
  const auto bad = [](std::string what) {
    return Status(ErrorCode::kInvalidArgument, std::move(what));
  };
  if (words.size() != 7) {
    return bad(
        "expected 7 columns (collective link ranks_min ranks_max bytes_max algorithm "
        "chunk_bytes), found " +
        std::to_string(words.size()));
  }
  if (!parse(words[0], &row->collective)) return bad("unknown collective '" + words[0] + "'");
  row->any_link = words[1] == "any";
  bool known_link = row->any_link;
  for (const Link link : {Link::kLoopback, Link::kShm, Link::kUnix, Link::kTcp}) {
    if (words[1] == name_of(link)) {
      row->link = link;
      known_link = true;
    }
  }
  if (!known_link) return bad("unknown link '" + words[1] + "' (any, loopback, shm, unix, tcp)");
  std::size_t low = 0;
  std::size_t high = 0;
  if (!parse_number(words[2], &low) || !parse_number(words[3], &high) || low < 1 || low > high ||
      high > (1 << 20)) {
    return bad("rank range '" + words[2] + " " + words[3] + "' is not 1 <= min <= max <= 1048576");
  }
  row->ranks_min = static_cast<int>(low);
  row->ranks_max = static_cast<int>(high);
  if (words[4] == "any") {
    row->bytes_max = kAnySize;
  } else if (!parse_number(words[4], &row->bytes_max)) {
    return bad("bytes_max '" + words[4] + "' is neither a number nor 'any'");
  }
  row->algorithm = words[5];
  if (row->algorithm != "native" && find(row->collective, row->algorithm) == nullptr) {
    return bad("unknown algorithm '" + words[5] + "' (native, " + names_of(row->collective) + ")");
  }
  if (!parse_number(words[6], &row->chunk_bytes)) return bad("chunk_bytes '" + words[6] + "'");
  return Status();
}

}  // namespace

std::string_view name_of(Link link) {
  switch (link) {
    case Link::kLoopback:
      return "loopback";
    case Link::kShm:
      return "shm";
    case Link::kUnix:
      return "unix";
    case Link::kTcp:
      return "tcp";
  }
  return "?";
}

SelectionTable SelectionTable::defaults() {
  SelectionTable table;
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

Result<SelectionTable> SelectionTable::from_text(std::string_view text) {
  SelectionTable table;
  std::istringstream lines{std::string(text)};
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream columns(line.substr(0, line.find('#')));
    std::vector<std::string> words;
    for (std::string word; columns >> word;) words.push_back(word);
    if (words.empty()) continue;
    SelectionRow row;
    if (const Status status = parse_row(words, &row); !status) {
      return Status(ErrorCode::kInvalidArgument,
                    "line " + std::to_string(number) + ": " + status.message());
    }
    table.rows_.push_back(std::move(row));
  }
  const SelectionTable rest = defaults();
  table.rows_.insert(table.rows_.end(), rest.rows_.begin(), rest.rows_.end());
  return table;
}

std::string SelectionTable::to_text() const {
  std::ostringstream out;
  out << "# collective link ranks_min ranks_max bytes_max algorithm chunk_bytes\n";
  for (const SelectionRow& row : rows_) {
    out << unisono::name_of(row.collective) << ' ' << (row.any_link ? "any" : name_of(row.link))
        << ' ' << row.ranks_min << ' ' << row.ranks_max << ' ';
    if (row.bytes_max == kAnySize) {
      out << "any";
    } else {
      out << row.bytes_max;
    }
    out << ' ' << row.algorithm << ' ' << row.chunk_bytes << '\n';
  }
  return out.str();
}

Result<Choice> SelectionTable::choose(const SelectionRequest& request,
                                      std::string_view hint) const {
  const plan::PlanRequest plan_request = to_plan_request(request);
  if (hint == "native" || (hint.empty() && request.native)) {
    if (request.native) return Choice{};
    return Status(ErrorCode::kUnsupported,
                  "algorithm native needs all ranks on one host with shared memory");
  }
  if (!hint.empty()) {
    const Algorithm* algorithm = find(request.collective, hint);
    const std::string call(unisono::name_of(request.collective));
    if (algorithm == nullptr) {
      return Status(ErrorCode::kInvalidArgument, "unknown algorithm '" + std::string(hint) +
                                                     "' for " + call + "; known: native, " +
                                                     names_of(request.collective));
    }
    if (const std::string_view reason = algorithm->refuses(plan_request); !reason.empty()) {
      return Status(ErrorCode::kUnsupported,
                    "algorithm " + std::string(hint) + " of " + call + ": " + std::string(reason));
    }
    for (const SelectionRow& row : rows_) {
      if (row.collective == request.collective && row.algorithm == hint) {
        return Choice{algorithm, chunks_for(row, request), ""};
      }
    }
    return Choice{algorithm, 1, ""};
  }
  for (const SelectionRow& row : rows_) {
    if (!matches(row, request) || row.algorithm == "native") continue;
    const Algorithm* algorithm = find(request.collective, row.algorithm);
    if (algorithm == nullptr || !algorithm->refuses(plan_request).empty()) continue;
    return Choice{algorithm, chunks_for(row, request), ""};
  }
  for (const Algorithm& algorithm : catalog()) {
    if (algorithm.collective == request.collective && algorithm.refuses(plan_request).empty()) {
      return Choice{&algorithm, 1, ""};
    }
  }
  return Status(ErrorCode::kUnsupported, "no algorithm of " +
                                             std::string(unisono::name_of(request.collective)) +
                                             " serves this operator and order on " +
                                             std::to_string(request.ranks) + " ranks");
}

std::string SelectionTable::explain(const SelectionRequest& request, std::string_view hint) const {
  const Result<Choice> choice = choose(request, hint);
  std::ostringstream out;
  out << unisono::name_of(request.collective) << ", " << request.bytes << " bytes, "
      << request.ranks << " ranks: ";
  if (!choice) {
    out << choice.error().message();
    return out.str();
  }
  if (choice->algorithm == nullptr) {
    out << "native, because all ranks share memory";
    return out.str();
  }
  const Cost cost = choice->algorithm->cost(request.ranks, choice->chunks, request.bytes);
  out << choice->algorithm->name << " over " << name_of(request.link) << " in " << choice->chunks
      << (choice->chunks == 1 ? " chunk" : " chunks") << " per block: " << cost.rounds
      << " rounds, " << static_cast<std::size_t>(cost.bytes_sent) << " bytes sent per rank";
  return out.str();
}

}  // namespace unisono::algorithms
