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

Error::Error(Status status, Context context)
    : status_(std::move(status)), context_(std::move(context)) {
  what_ = "unisono: ";
  if (!context_.operation.empty()) what_ += context_.operation + ": ";
  what_ += std::string(name_of(status_.code())) + ": " + status_.message();
}

}  // namespace unisono
