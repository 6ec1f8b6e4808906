#include "native_oracle.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "base/collective.h"
#include "native_values.h"
#include "tests/support/same_bytes.h"

namespace unisono::test {
namespace {

using Element = std::int32_t;
constexpr std::size_t kGuard = 16;
constexpr std::byte kGuardByte{0xa5};
// Elements are made aside, so many at a time, and moved or compared as one block, which a sanitizer
// looks at once.
constexpr std::size_t kAside = 4096;

/// Length of the block from `source` to `target` in an irregular call; zero for some.
std::size_t irregular(std::size_t count, int source, int target) {
  if ((source + target) % 3 == 2) return 0;
  return count + static_cast<std::size_t>((source * 5 + target * 2) % 7);
}

struct Layout {
  std::vector<std::size_t> counts, displacements;
  std::size_t extent = 0;
};

/// Blocks with a gap of one element between them.
template <typename LengthOf>
Layout layout_with_gaps(int size, const LengthOf& length_of) {
  Layout layout;
  for (int i = 0; i < size; ++i) {
    layout.counts.push_back(length_of(i));
    layout.displacements.push_back(layout.extent);
    layout.extent += layout.counts.back() + 1;
  }
  return layout;
}

/// A guarded array that may lie in the shared heap or off any alignment.
class Array {
 public:
  Array(TestRank& rank, const OracleCase& oracle_case, std::size_t count)
      : rank_(rank), count_(count), heap_(oracle_case.heap) {
    const std::size_t bytes = count * sizeof(Element) + 2 * kGuard + oracle_case.misalign;
    if (heap_) {
      auto memory = rank.segment->allocate(bytes);
      rank.check(memory.has_value(), "allocate: " + memory.status().message());
      memory_ = static_cast<std::byte*>(*memory);
    } else {
      own_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
      memory_ = own_.get();
    }
    begin_ = memory_ + kGuard + oracle_case.misalign;
    std::memset(memory_, static_cast<int>(kGuardByte), bytes);
  }
  ~Array() {
    if (heap_) rank_.check(rank_.segment->release(memory_).ok(), "release");
  }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  std::byte* at(std::size_t index) const { return begin_ + index * sizeof(Element); }
  bool guards_intact() const {
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (begin_[-1 - static_cast<std::ptrdiff_t>(i)] != kGuardByte) return false;
      if (at(count_)[i] != kGuardByte) return false;
    }
    return true;
  }

 private:
  TestRank& rank_;
  std::size_t count_;
  bool heap_;
  std::unique_ptr<std::byte[]> own_;
  std::byte* memory_ = nullptr;
  std::byte* begin_ = nullptr;
};

class Case {
 public:
  Case(TestRank& rank, const OracleCase& oracle_case)
      : rank_(rank),
        case_(oracle_case),
        n_(static_cast<std::size_t>(rank.size)),
        call_(rank.sequence + 1),
        count_(oracle_case.count),
        root_(rank.self == oracle_case.root) {
    asked_.collective = case_.collective;
    asked_.count = count_;
    asked_.type = DataType::kInt32;
    asked_.root = case_.root;
  }

  void run() {
    auto reduction = compute::Reduction::make(DataType::kInt32, ops::sum, rank_.size);
    rank_.check(reduction.has_value(), "Reduction::make");
    prepare(*reduction);
    const Status status = rank_.run(asked_, reduction_);
    const std::string what = describe(case_);
    rank_.check(status.ok(), what + ": " + status.message());
    if (status.ok()) verify();
    rank_.check(gaps_intact(), what + ": wrote between the blocks of its output");
    if (input_) rank_.check(input_->guards_intact(), what + ": wrote around its input");
    if (output_) rank_.check(output_->guards_intact(), what + ": wrote around its output");
  }

 private:
  /// Input and output of equal blocks. In place, the smaller is block `in_place_block` of the
  /// larger.
  void regular(std::size_t in_blocks, std::size_t out_blocks, std::size_t in_place_block) {
    const bool output_is_larger = out_blocks >= in_blocks;
    if (case_.in_place) {
      Array& shared = output_.emplace(rank_, case_, count_ * std::max(in_blocks, out_blocks));
      const std::size_t offset = in_blocks == out_blocks ? 0 : in_place_block * count_;
      input_at_ = shared.at(output_is_larger ? offset : 0);
      output_at_ = shared.at(output_is_larger ? 0 : offset);
    } else {
      input_at_ = input_.emplace(rank_, case_, count_ * in_blocks).at(0);
      output_at_ = output_.emplace(rank_, case_, count_ * out_blocks).at(0);
    }
    asked_.in = input_at_;
    asked_.out = output_at_;
    for (std::size_t block = 0; block < in_blocks; ++block) {
      put(block * count_, count_, static_cast<int>(block));
    }
  }

  void put(std::size_t at, std::size_t count, int target) const {
    const NativeSum sum{call_, rank_.self, rank_.self + 1, target};
    for (std::size_t first = 0; first < count; first += kAside) {
      const auto part = elements_of(sum, first, std::min(kAside, count - first));
      const auto bytes = std::as_bytes(std::span(part));
      std::copy(bytes.begin(), bytes.end(), input_at_ + (at + first) * sizeof(Element));
    }
  }

  void irregular_input(int targets) {
    input_at_ = input_.emplace(rank_, case_, in_.extent).at(0);
    asked_.in = input_at_;
    for (int target = 0; target < targets; ++target) {
      const auto t = static_cast<std::size_t>(target);
      put(in_.displacements[t], in_.counts[t], target);
    }
  }
  void irregular_output() {
    asked_.out = output_at_ = output_.emplace(rank_, case_, out_.extent).at(0);
  }

  void prepare(const compute::Reduction& reduction);
  std::size_t given_by(int source) const;
  std::size_t for_target(int target) const;
  void prepare_gather_v();
  void prepare_scatter_v();
  void prepare_all_to_all_v();
  void prepare_reduce_scatter_v();
  void verify();

  void expect(std::size_t at, std::size_t length, const NativeSum& sum) {
    for (std::size_t first = 0; first < length && !complained_; first += kAside) {
      const auto wanted = elements_of(sum, first, std::min(kAside, length - first));
      const std::span got(output_at_ + (at + first) * sizeof(Element),
                          wanted.size() * sizeof(Element));
      if (!same_bytes(std::as_bytes(std::span(wanted)), got)) complain(at + first, got, wanted);
    }
  }
  /// The element behind each block of an irregular output.
  bool gaps_intact() const {
    for (std::size_t block = 0; block < out_.counts.size(); ++block) {
      const std::byte* const gap =
          output_at_ + (out_.displacements[block] + out_.counts[block]) * sizeof(Element);
      const auto is_guard = [](std::byte byte) { return byte == kGuardByte; };
      if (!std::all_of(gap, gap + sizeof(Element), is_guard)) return false;
    }
    return true;
  }
  void complain(std::size_t at, std::span<const std::byte> got, std::span<const Element> wanted) {
    complained_ = true;
    std::vector<Element> elements(wanted.size());
    std::memcpy(elements.data(), got.data(), got.size());
    const auto [wrong, right] = std::mismatch(elements.begin(), elements.end(), wanted.begin());
    const auto index = at + static_cast<std::size_t>(wrong - elements.begin());
    rank_.check(false, describe(case_) + ": element " + std::to_string(index) + " is " +
                           std::to_string(*wrong) + ", not " + std::to_string(*right));
  }
  /// Block `at` of the output came from `source`, which had it for `target`.
  void expect_block(std::size_t at, std::size_t length, int source, int target) {
    expect(at, length, {call_, source, source + 1, target});
  }
  void expect_combined(std::size_t length, int first, int last, int target) {
    expect(0, length, {call_, first, last, target});
  }

  TestRank& rank_;
  const OracleCase& case_;
  std::size_t n_;
  std::uint32_t call_;
  std::size_t count_;
  bool root_;
  std::optional<Array> input_, output_;
  std::byte* input_at_ = nullptr;
  std::byte* output_at_ = nullptr;
  Call asked_;
  const compute::Reduction* reduction_ = nullptr;
  Layout in_, out_;
  bool complained_ = false;
};

void Case::prepare(const compute::Reduction& reduction) {
  const auto self = static_cast<std::size_t>(rank_.self);
  switch (case_.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce:
    case Collective::kScan:
    case Collective::kExscan:
      reduction_ = &reduction;
      return regular(1, 1, 0);
    case Collective::kBroadcast:
      output_at_ = output_.emplace(rank_, case_, count_).at(0);
      asked_.in = asked_.out = input_at_ = output_at_;
      if (root_) put(0, count_, 0);
      return;
    case Collective::kAllGather:
    case Collective::kGather:
      return regular(1, n_, self);
    case Collective::kScatter:
      return regular(n_, 1, self);
    case Collective::kReduceScatter:
      reduction_ = &reduction;
      return regular(n_, 1, self);
    case Collective::kAllToAll:
      return regular(n_, n_, 0);
    case Collective::kBarrier:
      asked_.count = 0;
      return;
    case Collective::kAllGatherV:
    case Collective::kGatherV:
      return prepare_gather_v();
    case Collective::kScatterV:
      return prepare_scatter_v();
    case Collective::kAllToAllV:
      return prepare_all_to_all_v();
    case Collective::kReduceScatterV:
      reduction_ = &reduction;
      return prepare_reduce_scatter_v();
    case Collective::kSend:
    case Collective::kReceive:
      break;
  }
  rank_.check(false, "no oracle for " + describe(case_));
}

// What rank `source` gives everybody.
std::size_t Case::given_by(int source) const { return irregular(count_, source, 0); }
// What the root has for `target`.
std::size_t Case::for_target(int target) const { return irregular(count_, case_.root, target); }

void Case::prepare_gather_v() {
  in_ = layout_with_gaps(1, [&](int) { return given_by(rank_.self); });
  out_ = layout_with_gaps(rank_.size, [&](int source) { return given_by(source); });
  irregular_input(1);
  irregular_output();
  asked_.count = in_.counts[0];
  if (case_.collective == Collective::kAllGatherV || root_) {
    asked_.out_counts = out_.counts;
    asked_.out_displacements = out_.displacements;
  }
}

void Case::prepare_scatter_v() {
  in_ = layout_with_gaps(rank_.size, [&](int target) { return for_target(target); });
  out_ = layout_with_gaps(1, [&](int) { return for_target(rank_.self); });
  irregular_input(root_ ? rank_.size : 0);
  irregular_output();
  asked_.count = out_.counts[0];
  if (root_) {
    asked_.in_counts = in_.counts;
    asked_.in_displacements = in_.displacements;
  }
}

void Case::prepare_all_to_all_v() {
  const int self = rank_.self;
  in_ = layout_with_gaps(rank_.size, [&](int t) { return irregular(count_, self, t); });
  out_ = layout_with_gaps(rank_.size, [&](int s) { return irregular(count_, s, self); });
  irregular_input(rank_.size);
  irregular_output();
  asked_.in_counts = in_.counts;
  asked_.in_displacements = in_.displacements;
  asked_.out_counts = out_.counts;
  asked_.out_displacements = out_.displacements;
}

void Case::prepare_reduce_scatter_v() {
  for (int r = 0; r < rank_.size; ++r) {
    in_.counts.push_back(given_by(r));
    in_.displacements.push_back(in_.extent);
    in_.extent += in_.counts.back();
  }
  irregular_input(rank_.size);
  out_ = layout_with_gaps(1, [&](int) { return given_by(rank_.self); });
  irregular_output();
  asked_.in_counts = in_.counts;
}

void Case::verify() {
  const int self = rank_.self;
  switch (case_.collective) {
    case Collective::kAllReduce:
      return expect_combined(count_, 0, rank_.size, 0);
    case Collective::kReduce:
      if (root_) expect_combined(count_, 0, rank_.size, 0);
      return;
    case Collective::kScan:
      return expect_combined(count_, 0, self + 1, 0);
    case Collective::kExscan:
      if (self > 0) expect_combined(count_, 0, self, 0);
      return;
    case Collective::kBroadcast:
      return expect_block(0, count_, case_.root, 0);
    case Collective::kGather:
    case Collective::kAllGather:
      if (case_.collective == Collective::kGather && !root_) return;
      for (int r = 0; r < rank_.size; ++r) {
        expect_block(static_cast<std::size_t>(r) * count_, count_, r, 0);
      }
      return;
    case Collective::kScatter:
      return expect_block(0, count_, case_.root, self);
    case Collective::kReduceScatter:
      return expect_combined(count_, 0, rank_.size, self);
    case Collective::kReduceScatterV:
      return expect_combined(out_.counts[0], 0, rank_.size, self);
    case Collective::kScatterV:
      return expect_block(0, out_.counts[0], case_.root, self);
    case Collective::kAllToAll:
      for (int r = 0; r < rank_.size; ++r) {
        expect_block(static_cast<std::size_t>(r) * count_, count_, r, self);
      }
      return;
    case Collective::kGatherV:
      if (!root_) return;
      [[fallthrough]];
    case Collective::kAllGatherV:
    case Collective::kAllToAllV:
      for (std::size_t r = 0; r < n_; ++r) {
        const int target = case_.collective == Collective::kAllToAllV ? self : 0;
        expect_block(out_.displacements[r], out_.counts[r], static_cast<int>(r), target);
      }
      return;
    case Collective::kBarrier:
    case Collective::kSend:
    case Collective::kReceive:
      return;
  }
}

}  // namespace

const std::vector<Collective>& all_collectives() {
  static const std::vector<Collective> all = [] {
    std::vector<Collective> made;
    for (const CollectiveFacts& facts : collective_rows::kAll) {
      if (facts.is_collective()) made.push_back(facts.collective);
    }
    return made;
  }();
  return all;
}

std::string describe(const OracleCase& oracle_case) {
  return std::string(name_of(oracle_case.collective)) + " of " + std::to_string(oracle_case.count) +
         ", root " + std::to_string(oracle_case.root) + (oracle_case.in_place ? ", in place" : "") +
         (oracle_case.heap ? ", heap" : "") + (oracle_case.misalign != 0 ? ", misaligned" : "");
}

void run_and_check(TestRank& rank, const OracleCase& oracle_case) { Case(rank, oracle_case).run(); }

}  // namespace unisono::test
