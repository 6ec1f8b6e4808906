// What a collective means for one rank, in bytes: what it gives, what it takes from whom, and
// whether what it takes is combined. Small and large calls carry out transfers.
//
// Thread rule: values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/block_counts.h"
#include "base/collective.h"
#include "native/native.h"

namespace unisono::native {

/// Ranks share the combining and exchange the results (all_reduce, reduce).
inline bool shares_combining(const CollectiveFacts& facts) {
  return facts.reduces && facts.is_one_vector() && !facts.is_prefix();
}

/// Each rank only gives, or only takes: what the root has, or what it gets. (Where ranks share the
/// combining, of what does not fit cells, they do both.)
inline bool goes_one_way(const CollectiveFacts& facts) { return facts.has_root(); }

struct Block {
  std::size_t offset = 0;
  std::size_t bytes = 0;
};

/// One block per member: equal ones at a stride, or as counts say.
struct Blocks {
  std::size_t bytes = 0;
  std::size_t stride = 0;
  std::size_t element_bytes = 1;
  BlockCounts uneven;  ///< without counts: equal ones

  Block at(int member) const {
    const auto index = static_cast<std::size_t>(member);
    return uneven.counts.empty() ? Block{index * stride, bytes} : irregular(index);
  }
  /// The bytes from the first block's begin to the last one's end.
  std::size_t extent(int members) const;

 private:
  Block irregular(std::size_t index) const;
};

struct MemberRange {
  int first = 0;
  int last = 0;
  int size() const { return last - first; }
  bool has(int member) const { return first <= member && member < last; }
};

/// Bytes that no two ranks need to agree on.
inline constexpr std::size_t kNotAgreed = SIZE_MAX;

struct Transfer {
  const std::byte* input = nullptr;
  std::size_t input_bytes = 0;  ///< what this rank gives, from `input` on
  std::byte* output = nullptr;

  /// Of any member, where all know it; else kNotAgreed, and each says in its offer what it gives.
  std::size_t largest_input_bytes = 0;
  bool in_parts = false;  ///< each reader takes its own block of the input; else all of it
  Blocks give;            ///< the readers' blocks, where in_parts
  MemberRange sources;    ///< whose data, or only arrival, this rank needs; itself included
  MemberRange readers;    ///< who needs this rank's input
  bool combines = false;  ///< output = the tree over the sources' blocks; else they are copied
  Blocks take;            ///< where a source's block goes in the output, and its length
  /// Where this rank's block begins in a source's input, if that is agreed.
  std::size_t source_offset = 0;
  bool goes_one_way = false;
  bool shares_combining = false;

  /// The output lies in the input, which is in the caches once it was given: in place, but for
  /// all_gather and for those that take what a root gives.
  bool writes_into_input(int members) const {
    if (readers.size() == 0) return false;
    const std::size_t bytes = combines ? take.bytes : take.extent(members);
    return output >= input && output + bytes <= input + input_bytes;
  }
  bool has_other_readers(int self) const { return readers.size() > (readers.has(self) ? 1 : 0); }
  /// Every rank needs something of every rank; all ranks know that.
  bool gives_and_takes_all(int members) const {
    return sources.size() == members && readers.size() == members;
  }
};

Transfer transfer_of(const Call& call, int size, int self);

/// Counts `times` messages to each reader and from each source of a call that is this transfer.
void count_transfer(const Transfer& transfer, int self, Collective collective, std::uint64_t times,
                    TrafficReport* report);

}  // namespace unisono::native
