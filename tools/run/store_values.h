// What the launcher's store holds, and who waits for what it does not hold yet: without sockets.
// Values; one thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/store/store_request.h"

namespace unisono::run {

/// A question of a rank of `node`, which numbers them.
struct Asker {
  int node = 0;
  std::uint64_t question = 0;
  auto operator<=>(const Asker&) const = default;
};

class StoreValues {
 public:
  /// Keys and values together; a set beyond is refused.
  static constexpr std::size_t kBytesMax = std::size_t{64} << 20;
  using Answers = std::vector<std::pair<Asker, std::string>>;

  /// The answers to give now, as bytes: this one, unless it has to wait, and those to who has
  /// waited for what it sets.
  Answers ask(const Asker& asker, const rendezvous::StoreRequest& request);
  void forget(const Asker& asker) { awaited_.erase(asker); }
  void forget_node(int node);
  bool holds(std::string_view key) const { return values_.contains(key); }
  std::size_t count_waiting(int node) const;

 private:
  std::string set(const rendezvous::StoreRequest& request);

  std::map<std::string, std::string, std::less<>> values_;
  std::size_t bytes_ = 0;
  std::map<Asker, std::string> awaited_;  // the key of a get that nobody has set yet
};

}  // namespace unisono::run
