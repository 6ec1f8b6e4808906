#include "tests/sim/messages.h"

#include <algorithm>
#include <cstring>

namespace unisono::sim {
namespace {

constexpr std::byte kUntouched{0xa5};
constexpr std::size_t kGuardBytes = 64;

std::size_t room_of(const test::CollectiveCase& what, const Exchange& exchange,
                    const Message& message) {
  if (message.is_send || message.index + 1 < exchange.messages) return what.count;
  const auto room = static_cast<std::ptrdiff_t>(what.count) + exchange.more_room;
  return static_cast<std::size_t>(std::max<std::ptrdiff_t>(room, 0));
}

}  // namespace

std::vector<Message> messages_of(const Exchange& exchange, Rank root, std::size_t number, Rank rank,
                                 int size) {
  std::vector<Message> sends, receives;
  const bool is_to_one = exchange.pattern == Exchange::Pattern::kToOne;
  // Without a tag of its own the second message of one rank may come before another's first.
  const bool own_tags = exchange.own_tags || (is_to_one && exchange.from_any);
  const auto add = [&](bool is_send, Rank peer, int index) {
    const Tag tag = static_cast<Tag>(number) * 8 + (own_tags ? index : 0);
    const bool is_open = !is_send && exchange.from_any;
    (is_send ? sends : receives).push_back({is_send, is_open ? kAnyRank : peer, tag, index});
  };
  const Rank partner = is_to_one ? root : ((exchange.shift - rank) % size + size) % size;
  for (int index = 0; index < exchange.messages; ++index) {
    if (is_to_one && rank == root) {
      for (Rank peer = 0; peer < size; ++peer) {
        if (peer != root) add(false, peer, index);
      }
    } else if (partner != rank) {
      add(true, partner, index);
      if (!is_to_one) add(false, partner, index);
    }
  }
  const bool sends_first = rank < partner;
  std::vector<Message>& all = sends_first ? sends : receives;
  const std::vector<Message>& rest = sends_first ? receives : sends;
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

MessagePart::MessagePart(const test::CollectiveCase& what, const Exchange& exchange,
                         const Message& message, Rank rank, int size, test::CaseMemory& memory)
    : what_(what),
      message_(message),
      rank_(rank),
      size_(size),
      room_(room_of(what, exchange, message)),
      memory_(memory) {
  const std::size_t bytes = room_ * size_of(what.type);
  std::vector<std::byte> image(kGuardBytes + bytes + kGuardBytes, kUntouched);
  if (message.is_send) {
    const std::vector<std::byte> sent = content(rank, message.peer);
    std::copy(sent.begin(), sent.end(), image.begin() + kGuardBytes);
  }
  base_ = memory_.take(image.size());
  memory_.write(base_, image.data(), image.size());
  std::byte* const data = bytes == 0 ? nullptr : base_ + kGuardBytes;
  call_ = {.collective = message.is_send ? Collective::kSend : Collective::kReceive,
           .count = room_,
           .type = what.type,
           .peer = message.peer,
           .tag = message.tag};
  if (message.is_send) {
    call_.in = data;
  } else {
    call_.out = data;
  }
}

// No two messages of a job have the same.
std::vector<std::byte> MessagePart::content(Rank source, Rank target) const {
  const auto first = static_cast<std::size_t>(message_.tag) * 31 +
                     static_cast<std::size_t>(target * 5 + message_.index * 3);
  return test::input_of({what_.type, OpKind::kUser, size_}, source, first, what_.count);
}

std::string MessagePart::check() const {
  const Rank source = message_.is_send ? rank_ : source_;
  const Rank target = message_.is_send ? message_.peer : rank_;
  const bool is_named = message_.is_send || message_.peer == kAnyRank || message_.peer == source;
  if (source < 0 || source >= size_ || !is_named) {
    return "a message of rank " + std::to_string(source);
  }
  const std::vector<std::byte> expected = content(source, target);
  if (!message_.is_send && received_bytes_ != expected.size()) {
    return "a message of " + std::to_string(received_bytes_) + " bytes and not of " +
           std::to_string(expected.size());
  }
  std::vector<std::byte> image(2 * kGuardBytes + room_ * size_of(what_.type));
  memory_.read(image.data(), base_, image.size());
  const auto begin = image.begin() + kGuardBytes;
  const auto end = begin + static_cast<std::ptrdiff_t>(expected.size());
  if (!std::equal(expected.begin(), expected.end(), begin)) {
    return "a message has other bytes than rank " + std::to_string(source) + " has sent";
  }
  const auto is_untouched = [](std::byte each) { return each == kUntouched; };
  if (!std::all_of(image.begin(), begin, is_untouched) ||
      !std::all_of(end, image.end(), is_untouched)) {
    return "bytes around a message were written";
  }
  return "";
}

}  // namespace unisono::sim
