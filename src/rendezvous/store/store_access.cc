#include "rendezvous/store/store_access.h"

#include <fmt/format.h>

#include <algorithm>

#include "unisono/rendezvous.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;

// So that every store is asked for a time that it can count.
constexpr milliseconds kStoreWaitMax = std::chrono::hours(1);

template <typename Call>
Status guarded(const Call& call) {
  try {
    call();
    return Status();
  } catch (const std::exception& error) {
    return store_failed(error.what());
  } catch (...) {
    return store_failed("unknown exception");
  }
}

}  // namespace

Status store_failed(const std::string& what) {
  return {ErrorCode::kRendezvous, fmt::format("the given store failed: {}", what)};
}

Status set_in_store(Store& store, std::string_view key, std::string_view value) {
  return guarded([&] { store.set(key, value); });
}

Result<std::string> get_from_store(Store& store, std::string_view key, TimePoint deadline) {
  const Duration left =
      std::clamp<Duration>(deadline - Clock::now(), milliseconds(1), kStoreWaitMax);
  std::string text;
  UNISONO_TRY(guarded([&] { text = store.get(key, std::chrono::ceil<milliseconds>(left)); }));
  return text;
}

}  // namespace unisono::rendezvous
