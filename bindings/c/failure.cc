#include "bindings/c/failure.h"

#include <new>
#include <string>
#include <string_view>

namespace unisono::c {
namespace {

struct LastError {
  unisono_code code = UNISONO_OK;
  std::int32_t rank = UNISONO_NO_RANK;
  std::string message{};
  Error::Context context{};
};

LastError& last_error() {
  thread_local LastError error;
  return error;
}

unisono_code keep(ErrorCode code, Rank rank, std::string_view message,
                  const Error* error = nullptr) noexcept {
  LastError& last = last_error();
  last.code = static_cast<unisono_code>(code);
  last.rank = rank;
  last.context = {};
  if (error != nullptr) last.context.failed_in = error->failed_in();
  try {
    last.message = message;
    if (error != nullptr) {
      last.context.host = error->host();
      last.context.link = error->link();
      last.context.operation = error->operation();
    }
  } catch (const std::bad_alloc&) {
    last.message.clear();
  }
  return last.code;
}

}  // namespace

unisono_code fail(const Status& status) noexcept {
  return keep(status.code(), status.rank(), status.message());
}

unisono_code fail_by_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return keep(error.code(), error.rank(), error.status().message(), &error);
  } catch (const std::bad_alloc&) {
    return keep(ErrorCode::kOutOfResources, UNISONO_NO_RANK, "there is no memory left");
  } catch (const std::exception& error) {
    return keep(ErrorCode::kSystem, UNISONO_NO_RANK, error.what());
  } catch (...) {
    return keep(ErrorCode::kSystem, UNISONO_NO_RANK, "an exception of unknown type");
  }
}

void forget_failure() noexcept { last_error() = {}; }

void refuse(const char* operation, const char* why) {
  throw Error(Status(ErrorCode::kInvalidArgument, why), {.operation = operation});
}

}  // namespace unisono::c

using unisono::c::last_error;

const char* unisono_last_error(void) { return last_error().message.c_str(); }
unisono_code unisono_last_error_code(void) { return last_error().code; }
std::int32_t unisono_last_error_rank(void) { return last_error().rank; }
const char* unisono_last_error_host(void) { return last_error().context.host.c_str(); }
const char* unisono_last_error_link(void) { return last_error().context.link.c_str(); }
const char* unisono_last_error_operation(void) { return last_error().context.operation.c_str(); }
std::int64_t unisono_last_error_number(std::int32_t* had_begun) {
  const unisono::FailedIn& place = last_error().context.failed_in;
  if (had_begun != nullptr) *had_begun = place.had_begun ? 1 : 0;
  return place.number;
}
