// What a rank says on a fresh connection to the arbiter: over TCP the proof of the job key, then
// who it is; and what it makes of the answers until it holds the world table.
//
// Thread rule: the thread that joins; blocks.
#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <variant>

#include "base/clock.h"
#include "rendezvous/meeting/joiner.h"

namespace unisono::rendezvous {

/// How often in a row one believes that its proof of the key was refused by accident.
inline constexpr int kRefusedProofsMax = 3;

/// Why one attempt failed, and whether another one may succeed.
struct Failure {
  Status why;
  bool final = false;
  /// The other side hung up on this rank's proof of the job key, though its time was not up.
  bool proof_refused = false;
  /// Somebody was there to whom this rank could say who it is.
  bool reached_arbiter = false;
};

template <typename T>
using Attempt = std::variant<T, Failure>;

/// Introduces `self` and waits for the world. `key` is what the rank knows already.
Attempt<Joined> converse(ControlStream stream, const Applicant& self, const JobKey& key,
                         TimePoint deadline);

/// Mutual authentication over TCP as rank `self`, until `deadline`. Empty when it succeeded.
/// `go_on` as Applicant::go_on.
std::optional<Failure> authenticate(ControlStream* stream, const JobKey& key, std::string_view job,
                                    Rank self, TimePoint deadline,
                                    const std::function<Status()>& go_on = {},
                                    HandshakePurpose purpose = HandshakePurpose::kControl);

}  // namespace unisono::rendezvous
