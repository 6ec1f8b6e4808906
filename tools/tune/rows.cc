#include "tools/tune/rows.h"

#include <algorithm>
#include <string>
#include <tuple>

namespace unisono::tune {
namespace {

using algorithms::SelectionRow;

constexpr double kClearlyFaster = 0.9;
constexpr std::size_t kAnySize = ~std::size_t{0};

bool same_point(const Task& a, const Task& b) {
  return a.link == b.link && a.collective == b.collective && a.bytes == b.bytes;
}

bool same_way(const SelectionRow& row, const Task& task) { return row.algorithm == task.algorithm; }

// Blocks are cut as a hint with this name would: that is what was measured.
std::size_t chunk_bytes_of(const algorithms::SelectionTable& defaults, const Task& task) {
  for (const SelectionRow& row : defaults.rows()) {
    if (row.collective == task.collective && row.algorithm == task.algorithm) {
      return row.chunk_bytes;
    }
  }
  return 0;
}

const SelectionRow* default_row(const algorithms::SelectionTable& defaults, const Task& task,
                                int ranks, bool shared_cores) {
  algorithms::SelectionRequest request;
  request.collective = task.collective;
  request.ranks = ranks;
  request.bytes = task.bytes;
  request.link = task.link;
  request.shared_cores = shared_cores;
  request.native = task.link == algorithms::Link::kShm;
  const Result<algorithms::Choice> choice = defaults.choose(request, "");
  return choice ? choice->row : nullptr;
}

// The fastest, or one of the `preferred` rows that is as good, the first of them first.
const Task* best_of(std::span<const Task* const> ways,
                    std::initializer_list<const SelectionRow*> preferred) {
  const Task* best = *std::min_element(ways.begin(), ways.end(), [](const Task* a, const Task* b) {
    return a->seconds < b->seconds;
  });
  for (const SelectionRow* row : preferred) {
    if (row == nullptr) continue;
    for (const Task* way : ways) {
      if (same_way(*row, *way) && way->seconds * kClearlyFaster <= best->seconds) return way;
    }
  }
  return best;
}

}  // namespace

std::vector<SelectionRow> best_rows(std::span<const Task> tasks, int ranks, bool shared_cores) {
  const algorithms::SelectionTable defaults = algorithms::SelectionTable::defaults();
  std::vector<const Task*> sorted;
  for (const Task& task : tasks) {
    if (task.seconds < kNever) sorted.push_back(&task);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const Task* a, const Task* b) {
    return std::tuple(a->link, a->collective, a->bytes) <
           std::tuple(b->link, b->collective, b->bytes);
  });
  std::vector<SelectionRow> rows;
  for (std::size_t first = 0; first < sorted.size();) {
    std::size_t last = first + 1;
    while (last < sorted.size() && same_point(*sorted[first], *sorted[last])) ++last;
    const Task& point = *sorted[first];
    SelectionRow* before = !rows.empty() && rows.back().collective == point.collective &&
                                   rows.back().link == point.link
                               ? &rows.back()
                               : nullptr;
    const Task& best = *best_of(std::span(sorted).subspan(first, last - first),
                                {default_row(defaults, point, ranks, shared_cores), before});
    const bool is_largest = last == sorted.size() || sorted[last]->collective != point.collective ||
                            sorted[last]->link != point.link;
    const bool has_no_end = is_largest && (best.algorithm == "native" || point.bytes == 0);
    // Halfway to the next size, on the logarithmic scale.
    const std::size_t bytes_max = has_no_end ? kAnySize : point.bytes * 2;
    first = last;
    if (before != nullptr && same_way(*before, best)) {
      before->bytes_max = bytes_max;
      continue;
    }
    SelectionRow row;
    row.collective = best.collective;
    row.any_link = false;
    row.link = best.link;
    row.ranks_min = row.ranks_max = ranks;
    row.cores = shared_cores ? algorithms::Cores::kShared : algorithms::Cores::kOwn;
    row.bytes_max = bytes_max;
    row.algorithm = best.algorithm;
    row.chunk_bytes = chunk_bytes_of(defaults, best);
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace unisono::tune
