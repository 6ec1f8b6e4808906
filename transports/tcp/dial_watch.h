// When a peer to whom no connection comes about counts as one that cannot be reached. All ranks
// listen before they meet, and the kernel lets in for a rank that computes, is stopped or lacks
// descriptors: so addresses that refuse or swallow everything for long are a broken link.
//
// Thread rule: that of its dial. Time is an argument.
#pragma once

#include <cstddef>

#include "base/clock.h"

namespace unisono::tcp {

class DialWatch {
 public:
  /// No patience: never.
  DialWatch(Duration patience, std::size_t addresses);

  /// At each look: after a pause in looking, in which the network may have changed, it begins anew.
  void look(TimePoint now);
  /// The first address is tried.
  void begin_round(TimePoint now);
  /// An address refuses: it may be that of a rank that is leaving.
  void note_refusal() { is_refused_ = true; }
  /// What was before says nothing of the peer: this rank could not dial, or was let in.
  void restart() { since_ = kNever; }

  /// All addresses have been in vain in this round: for so long that this is the end.
  bool is_over(TimePoint now) const;
  /// How long an address may take to let a connection in before the next try.
  Duration turn() const { return turn_; }
  /// Of a pause between two rounds that part after which it may be over.
  Duration pause(Duration usual, TimePoint now) const;

 private:
  Duration limit() const;

  const Duration patience_;
  const Duration turn_;
  TimePoint looked_ = kNever;
  TimePoint since_ = kNever;  // tried in vain
  TimePoint round_ = kNever;
  bool is_refused_ = false;  // in this round
};

}  // namespace unisono::tcp
