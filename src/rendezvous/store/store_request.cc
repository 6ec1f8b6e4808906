#include "rendezvous/store/store_request.h"

#include <fmt/format.h>

#include <cstdint>

#include "base/little_endian.h"

namespace unisono::rendezvous {
namespace {

using Kind = StoreRequest::Kind;

constexpr char kYes = 'y';
constexpr char kNo = 'n';
constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kKeyLengthBytes = 2;
static_assert(kStoreKeyBytesMax <= UINT16_MAX);

std::string with_length(std::string_view rest) {
  std::string bytes;
  append_little_endian(static_cast<std::uint32_t>(rest.size()), &bytes);
  return bytes.append(rest);
}

// What follows the length; empty while it is not whole. At least one byte follows.
Result<std::string_view> rest_of(std::string_view bytes) {
  if (bytes.size() < kLengthBytes) return std::string_view();
  const std::size_t length = read_little_endian(bytes.substr(0, kLengthBytes));
  const std::string_view rest = bytes.substr(kLengthBytes);
  if (length == 0 || length > kStoreBytesMax - kLengthBytes || rest.size() > length) {
    return Status(ErrorCode::kProtocol,
                  fmt::format("{} of {} bytes of the launcher's store, which are 1 to {}",
                              rest.size(), length, kStoreBytesMax - kLengthBytes));
  }
  return rest.size() < length ? std::string_view() : rest;
}

Status malformed() { return {ErrorCode::kProtocol, "these bytes are no question to a store"}; }

}  // namespace

Result<std::string> to_bytes(const StoreRequest& request) {
  if (request.key.empty() || request.key.size() > kStoreKeyBytesMax ||
      request.value.size() > kStoreValueBytesMax) {
    return Status(
        ErrorCode::kInvalidArgument,
        fmt::format("a key of {} and a value of {} bytes: the launcher's store takes 1 to {} and "
                    "at most {}",
                    request.key.size(), request.value.size(), kStoreKeyBytesMax,
                    kStoreValueBytesMax));
  }
  std::string rest(1, static_cast<char>(request.kind));
  append_little_endian(static_cast<std::uint16_t>(request.key.size()), &rest);
  return with_length(rest + request.key + request.value);
}

std::string store_answer(std::string_view value) {
  return with_length(std::string(1, kYes).append(value));
}

std::string store_refusal(std::string_view reason) {
  return with_length(std::string(1, kNo).append(reason));
}

Result<std::optional<StoreRequest>> request_from_bytes(std::string_view bytes) {
  UNISONO_ASSIGN(std::string_view rest, rest_of(bytes));
  if (rest.empty()) return std::optional<StoreRequest>();
  StoreRequest request{.kind = static_cast<Kind>(rest[0])};
  const bool is_set = request.kind == Kind::kSet;
  const bool is_known = is_set || request.kind == Kind::kGet || request.kind == Kind::kWait;
  if (rest.size() < 1 + kKeyLengthBytes || !is_known) return malformed();
  const std::size_t key_bytes = read_little_endian(rest.substr(1, kKeyLengthBytes));
  rest.remove_prefix(1 + kKeyLengthBytes);
  if (key_bytes == 0 || key_bytes > kStoreKeyBytesMax || key_bytes > rest.size()) {
    return malformed();
  }
  request.key = rest.substr(0, key_bytes);
  request.value = rest.substr(key_bytes);
  if (request.value.size() > kStoreValueBytesMax || (!is_set && !request.value.empty())) {
    return malformed();
  }
  return std::optional(std::move(request));
}

Result<std::optional<std::string>> answer_from_bytes(std::string_view bytes) {
  UNISONO_ASSIGN(const std::string_view rest, rest_of(bytes));
  if (rest.empty()) return std::optional<std::string>();
  if (rest[0] == kYes) return std::optional(std::string(rest.substr(1)));
  if (rest[0] != kNo) return Status(ErrorCode::kProtocol, "these bytes are no answer of a store");
  return Status(ErrorCode::kOutOfResources, std::string(rest.substr(1)));
}

}  // namespace unisono::rendezvous
