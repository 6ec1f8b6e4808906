// Refusing bytes: every message names who sent them.
#include <new>

#include "unisono/objects.h"

namespace unisono {

void ByteReader::fail(const std::string& what) const {
  throw Error(Status(ErrorCode::kProtocol,
                     "the object of rank " + std::to_string(source_) + ", " +
                         std::to_string(bytes_.size()) + " bytes, cannot be decoded at byte " +
                         std::to_string(position_) + ": " + what,
                     source_));
}

void ByteReader::fail_short(std::size_t bytes) const {
  fail(std::to_string(bytes) + " bytes are needed and " + std::to_string(remaining()) +
       " are left");
}

void ByteReader::fail_size(std::uint64_t size, std::size_t element_bytes) const {
  fail("it announces " + std::to_string(size) + " elements of at least " +
       std::to_string(element_bytes) + " bytes and " + std::to_string(remaining()) +
       " bytes are left");
}

namespace detail {

void throw_undecodable(std::exception_ptr failure, Rank source, const char* operation) {
  const std::string sender = "the object of rank " + std::to_string(source);
  const auto refusal = [&](ErrorCode code, const std::string& what) {
    return Error(Status(code, what, source), {.host = "", .link = "", .operation = operation});
  };
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    if (!error.operation().empty()) throw;
    throw Error(error.status(),
                {.host = error.host(), .link = error.link(), .operation = operation});
  } catch (const std::bad_alloc&) {
    throw refusal(ErrorCode::kOutOfResources, "there is no memory to decode " + sender);
  } catch (const std::exception& error) {
    throw refusal(ErrorCode::kProtocol, sender + " cannot be decoded: " + error.what());
  } catch (...) {
    throw refusal(ErrorCode::kProtocol, sender + " cannot be decoded");
  }
}

}  // namespace detail
}  // namespace unisono
