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

void throw_undecodable(std::exception_ptr failure, Rank source) {
  const std::string sender = "the object of rank " + std::to_string(source);
  try {
    std::rethrow_exception(failure);
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw Error(
        Status(ErrorCode::kOutOfResources, "there is no memory to decode " + sender, source));
  } catch (const std::exception& error) {
    throw Error(
        Status(ErrorCode::kProtocol, sender + " cannot be decoded: " + error.what(), source));
  } catch (...) {
    throw Error(Status(ErrorCode::kProtocol, sender + " cannot be decoded", source));
  }
}

}  // namespace detail
}  // namespace unisono
