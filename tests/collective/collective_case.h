// One collective call of the verification matrix: makes the buffers of a rank, runs the call and
// compares every byte, guards and gaps included, with what the oracle says. Thread rule: each rank
// runs its own copy.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/oracle.h"
#include "unisono/unisono.hpp"

namespace unisono::test {

struct CollectiveCase {
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kInt32;
  OpKind op = OpKind::kSum;  ///< reducing collectives
  std::size_t count = 0;     ///< as the call counts; v-collectives: the largest block
  Rank root = 0;
  bool in_place = false;
  bool displaced = false;  ///< v-collectives: blocks in reverse order with gaps between them
  std::size_t skew = 0;    ///< bytes by which buffers miss the alignment of an allocation
  CallOptions options{};
};

// What the oracle knows of each by itself.
bool reduces(Collective collective);
bool is_rooted(Collective collective);
bool has_counts(Collective collective);
std::string describe(const CollectiveCase& c);

/// Where the buffers of a rank's cases lie.
class CaseMemory {
 public:
  virtual ~CaseMemory() = default;
  /// Until clear(); aligned as operator new does.
  virtual std::byte* take(std::size_t bytes) = 0;
  virtual void clear() = 0;
  virtual void write(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  virtual void read(std::byte* to, const std::byte* from, std::size_t bytes) = 0;
  /// Returns when what the call left in a stream is over.
  virtual void finish() {}
};

/// A rank's part in a case: its buffers, the call on them, and what is right afterwards.
class CasePart {
 public:
  virtual ~CasePart() = default;
  /// Valid while this lives.
  virtual const Call& call() const = 0;
  /// After the call: empty when the result is right, else what is wrong with it.
  virtual std::string check() const = 0;
};
/// `memory` null: host memory of its own; else it outlives the part.
std::unique_ptr<CasePart> make_part(const CollectiveCase& c, Rank rank, int size,
                                    CaseMemory* memory = nullptr);

/// Empty when the rank's result is right, else what is wrong with it. Throws what the call throws.
/// `memory` null: host memory.
std::string run_case(Communicator& comm, const CollectiveCase& c, CaseMemory* memory = nullptr);

}  // namespace unisono::test
