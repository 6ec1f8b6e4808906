// A user's store, whose functions may throw anything and return anything.
//
// Thread rule: the thread that the store is used on.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace unisono {
class Store;
}

namespace unisono::rendezvous {

/// kRendezvous with the store's own words where it throws.
Status set_in_store(Store& store, std::string_view key, std::string_view value);
/// Waits for the key until `deadline`, and no less than a millisecond: to some stores 0 means for
/// ever. Empty where it was not set in that time. Errors as set_in_store().
Result<std::string> get_from_store(Store& store, std::string_view key, TimePoint deadline);

/// kRendezvous: the store failed, and how.
Status store_failed(const std::string& what);

}  // namespace unisono::rendezvous
