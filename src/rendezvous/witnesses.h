// What ranks of its host see of the process of a rank that says nothing. The arbiter asks one of
// them before it finds that rank silent, so that a stopped process is told from a host that cannot
// be reached. No sockets, no clock.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "rendezvous/peer_information.h"

namespace unisono::rendezvous {

enum class ProcessSight : std::uint8_t {
  kUnseen,  ///< it cannot be seen, or may be another process of the same number
  kStopped,
  kRuns,
};

/// What /proc says of the process of a rank on this host.
ProcessSight sight_of(const Member& member);
/// What that says of a rank that is silent, for people.
std::string_view sight_text(ProcessSight sight);

struct SightMessage {
  Rank rank = 0;  ///< whose process it is
  ProcessSight sight = ProcessSight::kUnseen;
};
/// kSight.
std::string encode(const SightMessage& message);
Result<SightMessage> decode_sight(std::string_view body, int size);

/// The arbiter's side.
class Witnesses {
 public:
  struct Question {
    Rank witness, rank;
    bool operator==(const Question&) const = default;
  };
  /// Whom to ask about whom now that these are overdue: each time of those that were not before.
  /// Ascending. `heard` may be asked. Ranks of equal `host_of` see each other's processes.
  std::vector<Question> ask(const std::vector<Rank>& overdue, const std::vector<Rank>& heard,
                            const std::function<HostKey(Rank)>& host_of);
  /// What was not asked counts for nothing.
  void on_sight(Rank witness, const SightMessage& told);
  /// Goes on after "nothing was heard of it"; empty where nobody has seen its process.
  std::string text_on(Rank rank) const;

 private:
  struct Asked {
    Rank witness;
    ProcessSight sight = ProcessSight::kUnseen;
  };
  std::map<Rank, Asked> asked_;  // by whom it is about
};

}  // namespace unisono::rendezvous
