#include "tests/collective/collective_case.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace unisono::test {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::byte kUntouched{0xa5};
constexpr std::size_t kGuardBytes = 64;

// Where one of the two buffers lies in the other.
enum class Alias { kNone, kInputInOutput, kOutputInInput };

// What one rank hands over and must get back.
struct Buffers {
  Bytes input;
  Bytes output;  ///< expected; kUntouched where the call must not write
  Alias alias = Alias::kNone;
  std::size_t alias_offset = 0;  ///< bytes
  std::vector<std::size_t> in_counts, in_displacements, out_counts, out_displacements;
};

// A rank's part in a case.
class Builder {
 public:
  Builder(const CollectiveCase& c, Rank rank, int size)
      : c_(c), rank_(rank), size_(size), bytes_(size_of(c.type)) {
    reducing_ = {c.type, reduces(c.collective) ? c.op : OpKind::kUser, size};
  }

  Buffers build() const {
    switch (c_.collective) {
      case Collective::kAllGather:
      case Collective::kAllGatherV:
      case Collective::kGather:
      case Collective::kGatherV:
        return gathering();
      case Collective::kScatter:
      case Collective::kScatterV:
        return scattering();
      case Collective::kReduceScatter:
      case Collective::kReduceScatterV:
        return reduce_scattering();
      case Collective::kAllToAll:
      case Collective::kAllToAllV:
        return exchanging();
      case Collective::kBroadcast: {
        Buffers b;
        b.output = input_of(reducing_, c_.root, 0, c_.count);
        b.input = input_of(reducing_, rank_, 0, c_.count);
        b.alias = Alias::kInputInOutput;
        return b;
      }
      case Collective::kAllReduce:
      case Collective::kReduce:
      case Collective::kScan:
      case Collective::kExscan:
        return reducing();
      case Collective::kBarrier:
      case Collective::kSend:
      case Collective::kReceive:
        return {};
    }
    return {};
  }
  const Reducing& reducing_kind() const { return reducing_; }

 private:
  bool is_root() const { return rank_ == c_.root; }

  std::size_t block(Rank from, Rank to) const {
    if (!has_counts(c_.collective) || c_.count == 0) return c_.count;
    const auto mixed = static_cast<std::size_t>(from * 3 + to * 5 + 1) + c_.count * 2;
    return mixed % (c_.count + 1);
  }

  // Counts and displacements of `size` blocks, and their extent in elements.
  std::size_t place(const std::vector<std::size_t>& counts, bool displaced,
                    std::vector<std::size_t>* displacements) const {
    displacements->assign(counts.size(), 0);
    std::size_t next = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const std::size_t at = displaced ? counts.size() - 1 - i : i;
      (*displacements)[at] = next;
      next += counts[at] + (displaced ? 1 : 0);
    }
    return next;
  }

  Buffers reducing() const {
    Buffers b;
    b.input = input_of(reducing_, rank_, 0, c_.count);
    const bool prefix = c_.collective == Collective::kScan || c_.collective == Collective::kExscan;
    const int last = !prefix ? size_ : c_.collective == Collective::kScan ? rank_ + 1 : rank_;
    if (c_.in_place && (c_.collective != Collective::kReduce || is_root())) {
      b.alias = Alias::kInputInOutput;
    }
    if (c_.collective == Collective::kReduce && !is_root()) {
      if (rank_ % 2 == 0) b.output.assign(c_.count * bytes_, kUntouched);
    } else if (last == 0) {
      b.output = b.alias == Alias::kNone ? Bytes(c_.count * bytes_, kUntouched) : b.input;
    } else {
      b.output = reduced_of(reducing_, last, 0, c_.count);
    }
    return b;
  }

  Buffers gathering() const {
    Buffers b;
    const bool to_all =
        c_.collective == Collective::kAllGather || c_.collective == Collective::kAllGatherV;
    for (Rank r = 0; r < size_; ++r) b.out_counts.push_back(block(r, 0));
    const bool displaced = has_counts(c_.collective) && c_.displaced;
    const std::size_t extent = place(b.out_counts, displaced, &b.out_displacements);
    const auto self = static_cast<std::size_t>(rank_);
    b.input = input_of(reducing_, rank_, 0, b.out_counts[self]);
    if (!to_all && !is_root()) return b;
    b.output.assign(extent * bytes_, kUntouched);
    for (Rank r = 0; r < size_; ++r) {
      const auto i = static_cast<std::size_t>(r);
      const Bytes theirs = input_of(reducing_, r, 0, b.out_counts[i]);
      std::copy(theirs.begin(), theirs.end(),
                b.output.begin() + static_cast<std::ptrdiff_t>(b.out_displacements[i] * bytes_));
    }
    if (c_.in_place) {
      b.alias = Alias::kInputInOutput;
      b.alias_offset = b.out_displacements[self] * bytes_;
    }
    return b;
  }

  Buffers scattering() const {
    Buffers b;
    for (Rank r = 0; r < size_; ++r) b.in_counts.push_back(block(0, r));
    const bool displaced = has_counts(c_.collective) && c_.displaced;
    const std::size_t extent = place(b.in_counts, displaced, &b.in_displacements);
    const auto self = static_cast<std::size_t>(rank_);
    const std::size_t first = b.in_displacements[self];
    if (is_root()) b.input = input_of(reducing_, c_.root, 0, extent);
    b.output = input_of(reducing_, c_.root, first, b.in_counts[self]);
    if (c_.in_place && is_root()) {
      b.alias = Alias::kOutputInInput;
      b.alias_offset = first * bytes_;
    }
    return b;
  }

  Buffers reduce_scattering() const {
    Buffers b;
    for (Rank r = 0; r < size_; ++r) b.in_counts.push_back(block(0, r));
    const std::size_t extent = place(b.in_counts, false, &b.in_displacements);
    const auto self = static_cast<std::size_t>(rank_);
    b.input = input_of(reducing_, rank_, 0, extent);
    b.output = reduced_of(reducing_, size_, b.in_displacements[self], b.in_counts[self]);
    if (c_.in_place) {
      b.alias = Alias::kOutputInInput;
      b.alias_offset = b.in_displacements[self] * bytes_;
    }
    return b;
  }

  Buffers exchanging() const {
    Buffers b;
    for (Rank r = 0; r < size_; ++r) {
      b.in_counts.push_back(block(rank_, r));
      b.out_counts.push_back(block(r, rank_));
    }
    const bool displaced = has_counts(c_.collective) && c_.displaced;
    b.input = input_of(reducing_, rank_, 0, place(b.in_counts, displaced, &b.in_displacements));
    b.output.assign(place(b.out_counts, displaced, &b.out_displacements) * bytes_, kUntouched);
    for (Rank r = 0; r < size_; ++r) {
      const auto i = static_cast<std::size_t>(r);
      std::vector<std::size_t> counts, displacements;
      for (Rank to = 0; to < size_; ++to) counts.push_back(block(r, to));
      place(counts, displaced, &displacements);
      const auto self = static_cast<std::size_t>(rank_);
      const Bytes theirs = input_of(reducing_, r, displacements[self], counts[self]);
      std::copy(theirs.begin(), theirs.end(),
                b.output.begin() + static_cast<std::ptrdiff_t>(b.out_displacements[i] * bytes_));
    }
    if (c_.in_place && c_.collective == Collective::kAllToAll) b.alias = Alias::kInputInOutput;
    return b;
  }

  const CollectiveCase& c_;
  const Rank rank_;
  const int size_;
  const std::size_t bytes_;
  Reducing reducing_;
};

class HostMemory final : public CaseMemory {
 public:
  std::byte* take(std::size_t bytes) override { return blocks_.emplace_back(bytes).data(); }
  void clear() override { blocks_.clear(); }
  void write(std::byte* to, const std::byte* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void read(std::byte* to, const std::byte* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }

 private:
  std::vector<Bytes> blocks_;
};

// A buffer with guards around it.
class Guarded {
 public:
  Guarded(CaseMemory& memory, const Bytes& content, std::size_t skew)
      : memory_(memory), skew_(kGuardBytes + skew), bytes_(content.size()) {
    Bytes image(whole_bytes(), kUntouched);
    std::copy(content.begin(), content.end(), image.begin() + static_cast<std::ptrdiff_t>(skew_));
    base_ = memory_.take(image.size());
    memory_.write(base_, image.data(), image.size());
  }
  std::byte* data() { return base_ + skew_; }

  std::string compare(const Bytes& expected, std::size_t element_bytes, const char* name) const {
    Bytes image(whole_bytes());
    memory_.read(image.data(), base_, image.size());
    const std::byte* actual = image.data() + skew_;
    if (!expected.empty() && std::memcmp(actual, expected.data(), expected.size()) != 0) {
      std::size_t i = 0;
      while (std::memcmp(actual + i, expected.data() + i, element_bytes) == 0) i += element_bytes;
      return std::string(name) + " element " + std::to_string(i / element_bytes) + " is " +
             hex(actual + i, element_bytes) + " and should be " +
             hex(expected.data() + i, element_bytes);
    }
    const auto intact = [](std::byte b) { return b == kUntouched; };
    const auto first = image.begin() + static_cast<std::ptrdiff_t>(skew_);
    if (!std::all_of(image.begin(), first, intact)) {
      return std::string("bytes before ") + name + " were written";
    }
    if (!std::all_of(first + static_cast<std::ptrdiff_t>(bytes_), image.end(), intact)) {
      return std::string("bytes behind ") + name + " were written";
    }
    return "";
  }

 private:
  std::size_t whole_bytes() const { return skew_ + bytes_ + kGuardBytes; }

  CaseMemory& memory_;
  std::size_t skew_;
  std::size_t bytes_;
  std::byte* base_ = nullptr;
};

Call make_call(const CollectiveCase& c, const Buffers& b, const Reducing& reducing, Rank rank,
               bool is_root) {
  Call call{.collective = c.collective,
            .count = c.count,
            .type = c.type,
            .op = reduces(c.collective) ? op_of(reducing, rank) : ReduceOp{},
            .root = c.root,
            .options = c.options};
  if (!has_counts(c.collective)) return call;
  if (is_rooted(c.collective)) {
    const auto self = static_cast<std::size_t>(rank);
    call.count = (b.in_counts.empty() ? b.out_counts : b.in_counts)[self];
    if (!is_root) return call;
  }
  call.in_counts = b.in_counts;
  call.out_counts = b.out_counts;
  if (c.displaced && !reduces(c.collective)) {
    call.in_displacements = b.in_displacements;
    call.out_displacements = b.out_displacements;
  }
  return call;
}

class GuardedPart final : public CasePart {
 public:
  GuardedPart(const CollectiveCase& c, Rank rank, int size, CaseMemory* memory)
      : c_(c), builder_(c_, rank, size), buffers_(builder_.build()) {
    CaseMemory& place = memory != nullptr ? *memory : host_;
    call_ = make_call(c_, buffers_, builder_.reducing_kind(), rank, rank == c_.root);
    const auto offset = static_cast<std::ptrdiff_t>(buffers_.alias_offset);
    if (buffers_.alias == Alias::kNone) {
      in_.emplace(place, buffers_.input, c_.skew);
      out_.emplace(place, Bytes(buffers_.output.size(), kUntouched), c_.skew);
      // Null where there is nothing to read or to write.
      call_.in = buffers_.input.empty() ? nullptr : in_->data();
      call_.out = buffers_.output.empty() ? nullptr : out_->data();
    } else if (buffers_.alias == Alias::kInputInOutput) {
      Bytes start(buffers_.output.size(), kUntouched);
      std::copy(buffers_.input.begin(), buffers_.input.end(), start.begin() + offset);
      out_.emplace(place, start, c_.skew);
      call_.in = out_->data() + offset;
      call_.out = out_->data();
    } else {
      in_.emplace(place, buffers_.input, c_.skew);
      call_.in = in_->data();
      call_.out = in_->data() + offset;
    }
  }

  const Call& call() const override { return call_; }
  std::string check() const override {
    const std::size_t bytes = size_of(c_.type);
    if (buffers_.alias == Alias::kOutputInInput) {
      Bytes expected = buffers_.input;
      std::copy(buffers_.output.begin(), buffers_.output.end(),
                expected.begin() + static_cast<std::ptrdiff_t>(buffers_.alias_offset));
      return in_->compare(expected, bytes, "in with out");
    }
    const std::string wrong = out_->compare(buffers_.output, bytes, "out");
    if (!wrong.empty() || buffers_.alias == Alias::kInputInOutput) return wrong;
    return in_->compare(buffers_.input, bytes, "in");
  }

 private:
  const CollectiveCase c_;
  HostMemory host_;
  const Builder builder_;
  const Buffers buffers_;
  std::optional<Guarded> in_, out_;
  Call call_;
};

}  // namespace

bool reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduce ||
         collective == Collective::kReduceScatter || collective == Collective::kReduceScatterV ||
         collective == Collective::kScan || collective == Collective::kExscan;
}

bool has_counts(Collective collective) {
  return collective == Collective::kAllGatherV || collective == Collective::kReduceScatterV ||
         collective == Collective::kGatherV || collective == Collective::kScatterV ||
         collective == Collective::kAllToAllV;
}

bool is_rooted(Collective collective) {
  return collective == Collective::kReduce || collective == Collective::kBroadcast ||
         collective == Collective::kGather || collective == Collective::kGatherV ||
         collective == Collective::kScatter || collective == Collective::kScatterV;
}

std::string describe(const CollectiveCase& c) {
  std::string text = std::string(name_of(c.collective)) + " of " + std::to_string(c.count) + " " +
                     std::string(name_of(c.type));
  if (reduces(c.collective)) text += ", " + std::string(name_of(c.op));
  if (is_rooted(c.collective)) text += ", root " + std::to_string(c.root);
  if (c.in_place) text += ", in place";
  if (c.displaced) text += ", displaced";
  if (c.skew != 0) text += ", off by " + std::to_string(c.skew) + " bytes";
  if (!c.options.algorithm.empty()) text += ", algorithm " + std::string(c.options.algorithm);
  if (c.options.order == Order::kCanonical) text += ", canonical";
  return text;
}

std::unique_ptr<CasePart> make_part(const CollectiveCase& c, Rank rank, int size,
                                    CaseMemory* memory) {
  return std::make_unique<GuardedPart>(c, rank, size, memory);
}

std::string run_case(Communicator& comm, const CollectiveCase& c, CaseMemory* memory) {
  if (memory != nullptr) memory->clear();
  const auto part = make_part(c, comm.rank(), comm.size(), memory);
  comm.run(part->call());
  if (memory != nullptr) memory->finish();
  return part->check();
}

}  // namespace unisono::test
