#include "unisono/error.h"

namespace unisono {

std::string_view name_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kOk:
      return "ok";
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kMismatch:
      return "calls differ";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kRankFailed:
      return "rank failed";
    case ErrorCode::kRankLeft:
      return "rank left";
    case ErrorCode::kAborted:
      return "aborted";
    case ErrorCode::kAuthentication:
      return "authentication failed";
    case ErrorCode::kRendezvous:
      return "rendezvous failed";
    case ErrorCode::kOutOfResources:
      return "out of resources";
    case ErrorCode::kSystem:
      return "system error";
    case ErrorCode::kProtocol:
      return "protocol violated";
    case ErrorCode::kNotMember:
      return "not a member";
    case ErrorCode::kClosed:
      return "closed";
    case ErrorCode::kCorrupted:
      return "data corrupted";
    case ErrorCode::kPartitioned:
      return "partitioned";
  }
  return "unknown";
}

namespace {

// Nothing where the message says it.
std::string text_of(const FailedIn& place, const std::string& message) {
  const std::string operation = "operation " + std::to_string(place.number);
  if (place.number < 0 || message.find(operation) != std::string::npos) return "";
  return (place.had_begun ? " (in " : " (before ") + operation + ")";
}

}  // namespace

Error::Error(Status status, Context context)
    : status_(std::move(status)), context_(std::move(context)) {
  what_ = "unisono: ";
  if (!context_.operation.empty()) what_ += context_.operation + ": ";
  what_ += std::string(name_of(status_.code())) + ": " + status_.message() +
           text_of(context_.failed_in, status_.message());
}

}  // namespace unisono
