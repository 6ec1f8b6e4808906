// How a failure reaches the caller: one exception type at the C++ boundary, the same facts as a
// value (Status) for those who do not want exceptions.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include "unisono/export.h"
#include "unisono/types.h"

namespace unisono {

enum class ErrorCode : std::uint8_t {
  kOk,
  kInvalidArgument,  ///< a value of this call; the communicator stays usable
  kUnsupported,      ///< a combination this build, machine or algorithm does not offer
  kMismatch,         ///< ranks made different calls
  kTimeout,          ///< the deadline passed; the message lists who had not arrived
  kRankFailed,       ///< a rank died or its connection closed without goodbye
  kRankLeft,         ///< a rank closed its communicator before this call
  kAborted,          ///< abort() was called
  kAuthentication,   ///< a peer did not know the job key
  kRendezvous,       ///< ranks could not meet: address in use, wrong world size, missing rank
  kOutOfResources,   ///< memory, descriptors, shared memory, a bound of this library
  kSystem,           ///< the operating system refused; the message has its words
  kProtocol,         ///< a peer sent what no correct peer sends
  kNotMember,        ///< the communicator is empty: this rank is in no group of the split
  kClosed,           ///< the communicator was closed here
  kCorrupted,        ///< bytes changed on their way between two ranks (UNISONO_CHECKSUM)
  kPartitioned,      ///< this rank hears too few of the others: those may go on without it
};
inline constexpr int kErrorCodeCount = static_cast<int>(ErrorCode::kPartitioned) + 1;

/// "ok", "invalid argument", ...
UNISONO_API std::string_view name_of(ErrorCode code);

/// The outcome of an operation as a value. Cheap when ok.
class [[nodiscard]] UNISONO_API Status {
 public:
  Status() = default;
  Status(ErrorCode code, std::string message, Rank rank = -1)
      : code_(code), rank_(rank), message_(std::move(message)) {}

  bool ok() const { return code_ == ErrorCode::kOk; }
  explicit operator bool() const { return ok(); }
  ErrorCode code() const { return code_; }
  /// The rank that caused the failure, in the numbering of the communicator; -1: none or unknown.
  Rank rank() const { return rank_; }
  /// One sentence: what, which value, which limit, what to do. Its ranks are numbered as rank() is,
  /// unless it says that the job numbers them.
  const std::string& message() const { return message_; }

 private:
  ErrorCode code_ = ErrorCode::kOk;
  Rank rank_ = -1;
  std::string message_;
};

/// Where a rank was in its communicator's collectives, which are counted from 0, when that failed
/// for it. Ranks that were in one call say the same.
struct FailedIn {
  std::int64_t number = -1;  ///< the oldest that was not over, or the next one; -1: unknown
  bool had_begun = false;    ///< it was in that one, and not between two
};

/// Thrown by calls of the public C++ API and by Request::wait().
class UNISONO_API Error : public std::exception {
 public:
  struct Context {
    std::string host{};       ///< where the failed rank runs, if known
    std::string link{};       ///< the transport to that rank, "tcp"; empty where it is this one
    std::string operation{};  ///< the call that reports, "all_reduce"
    FailedIn failed_in{};     ///< of a failure of the communicator
  };

  explicit Error(Status status) : Error(std::move(status), Context{}) {}
  Error(Status status, Context context);

  const char* what() const noexcept override { return what_.c_str(); }
  const Status& status() const { return status_; }
  ErrorCode code() const { return status_.code(); }
  Rank rank() const { return status_.rank(); }
  const std::string& host() const { return context_.host; }
  const std::string& link() const { return context_.link; }
  const std::string& operation() const { return context_.operation; }
  FailedIn failed_in() const { return context_.failed_in; }

 private:
  Status status_;
  Context context_;
  std::string what_;
};

}  // namespace unisono
