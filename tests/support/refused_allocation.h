// Allocations of the program that links refused_allocation.cc, each of which a test may have
// refused. Sanitizers bring their own allocator: with them none is counted or refused.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace unisono::test {

extern constinit thread_local std::uint64_t allocations;
/// The one of that number fails.
extern constinit thread_local std::uint64_t refused_allocation;
/// As long as it is not 0, that one and all behind it fail.
extern constinit thread_local std::uint64_t refused_from;
/// As long as it is not 0, every one of so many bytes or more fails.
extern constinit thread_local std::size_t refused_bytes;
/// On any thread.
extern std::atomic<bool> was_refused;
/// As long as it is set, all of the process fail, or all but those of the threads that speak with
/// the arbiter and are one.
enum class Refused { kNone, kAll, kAllButControl };
extern std::atomic<Refused> refused_everywhere;

}  // namespace unisono::test
