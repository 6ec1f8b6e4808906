// The exchange that every object call begins with: what each rank wants and allows. All ranks judge
// the same table by the same rules, so all go on or all throw the same error.
// Thread rule: as Communicator.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/collective.h"
#include "base/result.h"
#include "unisono/communicator.h"
#include "unisono/objects.h"

namespace unisono::objects {

enum class Kind : std::uint8_t {
  kGather = 1,
  kAllGather,
  kBroadcast,
  kScatter,
  kStreamGather,
  kStreamAllGather,
  kStreamBroadcast,
  kPlainList,
  kFramedList,
  kGatherValues,
  kAllGatherValues,
  kBroadcastValue,
  kScatterValues,
};
/// What the collectives get that an object call is made of: selection decides their algorithms.
inline CallOptions options_of_collectives(const CallOptions& call) {
  return {.timeout = call.timeout, .algorithm = kAutomaticAlgorithm};
}

/// "gather_objects" ..., what the user called; empty for no kind.
std::string_view name_of(Kind kind);
/// Whether the call has a root.
bool is_rooted(Kind kind);

/// Why a rank cannot take part: it says so instead of leaving the others waiting.
enum class Refusal : std::uint8_t {
  kNone,
  kBadRoot,     ///< its root is no rank
  kBlobCount,   ///< root of a scatter: the detail is how many objects it has
  kNoSink,      ///< it receives and gave no callback
  kNoProducer,  ///< its producer is empty
  kNoBytes,     ///< null, but the detail is how many bytes there are to be
  kAlgorithm,   ///< it named an algorithm
  kEncoding,    ///< its serializer or the range of its list threw
  kTimeout,     ///< its time-out is negative
};

struct Announcement {
  Kind kind = Kind::kGather;
  std::uint64_t bytes = 0;  ///< of this rank's object; at the root of a scatter: the largest
  std::uint64_t limit = 0;
  std::uint64_t staging = 0;
  Rank root = -1;  ///< -1: the call has none
  Refusal refusal = Refusal::kNone;
  std::uint64_t detail = 0;
  std::uint32_t element_bytes = 0;  ///< of a plain list
  bool produces = false;            ///< by a callback, which may fail on the way
};

/// As it travels.
using Words = std::array<std::uint64_t, 8>;
Words to_words(const Announcement& announcement);

/// What holds for the call on every rank.
struct Agreement {
  std::vector<std::uint64_t> bytes;  ///< by rank
  std::uint64_t staging = 0;
  bool any_producer = false;
};

/// The rules. Errors name the rank at fault.
Result<Agreement> judge(std::span<const Words> table);

/// Fills limit and staging in from `options` or the environment's settings, exchanges and judges.
/// Throws Error.
Agreement announce(Communicator& communicator, Announcement own, const ObjectOptions& options);

/// Throws kNotMember where there is nobody to talk to.
void check_member(const Communicator& communicator, Kind kind);

/// `status` as the exception of a call.
[[noreturn]] void fail(const Communicator& communicator, Kind kind, Status status);

/// One word from every rank.
std::vector<std::uint64_t> exchange_word(Communicator& communicator, Kind kind, std::uint64_t word,
                                         const CallOptions& options);

}  // namespace unisono::objects
