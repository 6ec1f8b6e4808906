// Sends and receives of a case: which ones a rank makes in what order, and what is right
// afterwards.
//
// Thread rule: pure functions; a part is used by one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "engine/messenger.h"
#include "tests/collective/collective_case.h"

namespace unisono::sim {

/// Messages between all ranks, of the type and the count of their operation. Nobody waits for ever,
/// also where each call is over before the next one begins.
struct Exchange {
  enum class Pattern : std::uint8_t {
    kPairs,  ///< rank r and rank `shift` - r, modulo the ranks, each to the other one
    kToOne,  ///< all others to the operation's root
  };
  Pattern pattern = Pattern::kPairs;
  Rank shift = 0;
  int messages = 0;  ///< from one rank to another; 0: the operation is a collective
  bool own_tags = false;
  bool from_any = false;  ///< receives name no source
  bool blocks = false;    ///< calls are blocking ones
  int more_room = 0;      ///< elements of the last receive, beyond what is sent
};

struct Message {
  bool is_send = false;
  Rank peer = 0;  ///< kAnyRank: of whichever
  Tag tag = 0;
  int index = 0;  ///< of those from its source to its target
};

/// What `rank` of `size` makes as operation `number`, in order.
std::vector<Message> messages_of(const Exchange& exchange, Rank root, std::size_t number, Rank rank,
                                 int size);

/// One send or receive: its buffer, the call, and what is right afterwards.
class MessagePart final : public test::CasePart {
 public:
  /// `memory` outlives it.
  MessagePart(const test::CollectiveCase& what, const Exchange& exchange, const Message& message,
              Rank rank, int size, test::CaseMemory& memory);

  const Call& call() const override { return call_; }
  const Message& message() const { return message_; }
  /// Of what a receive got.
  void note(Rank source, std::size_t bytes) {
    source_ = source;
    received_bytes_ = bytes;
  }
  Rank source() const { return source_; }
  /// The receive has too little room, which is its own error.
  bool is_refused() const { return room_ < what_.count; }
  std::string check() const override;

 private:
  std::vector<std::byte> content(Rank source, Rank target) const;

  const test::CollectiveCase what_;
  const Message message_;
  const Rank rank_;
  const int size_;
  const std::size_t room_;  // elements
  test::CaseMemory& memory_;
  std::byte* base_ = nullptr;
  Call call_;
  Rank source_ = -1;
  std::size_t received_bytes_ = 0;
};

}  // namespace unisono::sim
