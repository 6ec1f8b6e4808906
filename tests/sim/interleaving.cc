#include "tests/sim/interleaving.h"

#include <utility>

namespace unisono::sim {
namespace {

// Of what is stored, one is seen at one of so many accesses.
constexpr std::uint64_t kSeenOneIn = 4;
Interleaving* active = nullptr;

}  // namespace

Interleaving* Interleaving::current() { return active; }

void Interleaving::run(std::function<void()> beat) {
  active = this;
  if (is_interrupted()) {
    fiber_.go_on();
  } else {
    fiber_.begin(std::move(beat));
  }
  active = nullptr;
  if (!is_interrupted()) flush();
}

void Interleaving::in_one_go(const std::function<void()>& what) {
  Interleaving* const rank = std::exchange(active, nullptr);
  if (rank != nullptr) rank->flush();
  what();
  active = rank;
}

void Interleaving::on_access() {
  if (!stores_.empty() && random_.one_in(kSeenOneIn)) see_first();
  if (random_.one_in(interrupted_one_in_)) fiber_.leave();
}

// Stores are seen in their order.
void Interleaving::store(volatile void* to, const void* value, std::size_t bytes) {
  Store store{to, 0, bytes};
  std::memcpy(&store.value, value, bytes);
  stores_.push_back(store);
  if (!random_.one_in(buffered_one_in_)) flush();
}

bool Interleaving::find_stored(const volatile void* from, void* value, std::size_t bytes) const {
  for (auto store = stores_.rbegin(); store != stores_.rend(); ++store) {
    if (store->to != from || store->bytes != bytes) continue;
    std::memcpy(value, &store->value, bytes);
    return true;
  }
  return false;
}

void Interleaving::flush() {
  while (!stores_.empty()) see_first();
}

void Interleaving::see_first() {
  const Store& first = stores_.front();
  std::memcpy(const_cast<void*>(first.to), &first.value, first.bytes);
  stores_.pop_front();
}

}  // namespace unisono::sim
