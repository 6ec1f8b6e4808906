#include "tools/run/store_values.h"

#include <fmt/format.h>

#include <iterator>

namespace unisono::run {

using rendezvous::StoreRequest;

StoreValues::Answers StoreValues::ask(const Asker& asker, const StoreRequest& request) {
  const auto found = values_.find(request.key);
  if (request.kind != StoreRequest::Kind::kSet) {
    if (found != values_.end()) return {{asker, rendezvous::store_answer(found->second)}};
    if (request.kind == StoreRequest::Kind::kGet) return {{asker, rendezvous::store_answer("")}};
    awaited_[asker] = request.key;
    return {};
  }
  Answers answers{{asker, set(request)}};
  if (!holds(request.key)) return answers;  // refused
  std::erase_if(awaited_, [&](const auto& each) {
    if (each.second != request.key) return false;
    answers.emplace_back(each.first, rendezvous::store_answer(request.value));
    return true;
  });
  return answers;
}

std::string StoreValues::set(const StoreRequest& request) {
  const auto found = values_.find(request.key);
  const std::size_t before = found == values_.end() ? 0 : request.key.size() + found->second.size();
  const std::size_t bytes = bytes_ - before + request.key.size() + request.value.size();
  if (bytes > kBytesMax) {
    return rendezvous::store_refusal(
        fmt::format("the launcher's store holds {} bytes and takes at most {}", bytes_, kBytesMax));
  }
  bytes_ = bytes;
  values_[request.key] = request.value;
  return rendezvous::store_answer("");
}

void StoreValues::forget_node(int node) {
  awaited_.erase(awaited_.lower_bound({node, 0}), awaited_.lower_bound({node + 1, 0}));
}

std::size_t StoreValues::count_waiting(int node) const {
  return static_cast<std::size_t>(
      std::distance(awaited_.lower_bound({node, 0}), awaited_.lower_bound({node + 1, 0})));
}

}  // namespace unisono::run
