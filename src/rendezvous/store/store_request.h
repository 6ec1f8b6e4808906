// What a rank asks the launcher's store, and what it answers: one question for each connection, as
// bytes. Both sides bound and check what comes.
//
//   question: length of the rest (4 bytes), 's', 'g' or 'w', length of the key (2), key, value
//   answer:   length of the rest (4), 'y' and the value of a get, or 'n' and the reason
//
// A get ('g') of a key that was not set is answered by an empty value; one that waits ('w') is
// answered once it has been set, and who waits no longer hangs up. Values only; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace unisono::rendezvous {

inline constexpr std::size_t kStoreKeyBytesMax = 512;
/// What a rank 0 publishes is the longest: addresses and a key.
inline constexpr std::size_t kStoreValueBytesMax = 16 << 10;
/// Of a question or an answer, with all lengths.
inline constexpr std::size_t kStoreBytesMax = 4 + 1 + 2 + kStoreKeyBytesMax + kStoreValueBytesMax;

struct StoreRequest {
  enum class Kind : char { kSet = 's', kGet = 'g', kWait = 'w' };
  Kind kind = Kind::kGet;
  std::string key;
  std::string value;  ///< of a set
};

/// kInvalidArgument where key or value is too long, or the key empty.
Result<std::string> to_bytes(const StoreRequest& request);
std::string store_answer(std::string_view value);
std::string store_refusal(std::string_view reason);

/// Nothing while more bytes have to come; kProtocol where they can be no question.
Result<std::optional<StoreRequest>> request_from_bytes(std::string_view bytes);
/// The value; nothing while more bytes have to come; kOutOfResources with the reason of a refusal,
/// kProtocol where they can be no answer.
Result<std::optional<std::string>> answer_from_bytes(std::string_view bytes);

}  // namespace unisono::rendezvous
