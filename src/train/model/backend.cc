#include "train/model/backend.h"

#include "train/host/host_backend.h"
#include "train/model/device_memory.h"

namespace unisono::train {

Backend& backend_of(const std::shared_ptr<DeviceMemory::Account>& account) {
  return account != nullptr ? *account->backend : *host_backend();
}

Backend& current_backend() { return backend_of(current_account()); }
Backend& backend_of(const Tensor& tensor) { return backend_of(tensor.account()); }
Backend& backend_of(const Arena& arena) { return backend_of(arena.storage()); }

CallOptions in_stream(const Backend& backend, CallOptions options) {
  options.stream = backend.stream();
  return options;
}

std::vector<float> host_copy(Backend& backend, std::span<const float> values) {
  std::vector<float> copy(values.size());
  if (!values.empty()) backend.read(values.data(), values.size(), copy.data());
  return copy;
}

Tensor tensor_of(std::span<const float> host) {
  Tensor tensor = Tensor::uninitialised({host.size()});
  if (!host.empty()) backend_of(tensor).write(host.data(), host.size(), tensor.data());
  return tensor;
}

void copy_elements(const Tensor& from, Tensor* to) {
  if (from.empty()) return;
  Backend &source = backend_of(from), &target = backend_of(*to);
  if (&source == &target) {
    target.copy(from.data(), from.size(), to->data());
  } else if (source.is_page_locked()) {
    target.write_page_locked(from.data(), from.size(), to->data());
  } else if (source.is_host()) {
    target.write(from.data(), from.size(), to->data());
  } else if (target.is_host()) {
    source.read(from.data(), from.size(), to->data());
  } else {
    const std::vector<float> between = host_copy(source, from.values());
    target.write(between.data(), between.size(), to->data());
  }
}

Tensor uninitialised_beside(const Tensor& tensor) {
  // What computes on the host charges whoever computes; a GPU's tensors have one account.
  const bool same = &backend_of(tensor) == &current_backend();
  return Tensor::uninitialised(tensor.shape(), same ? current_account() : tensor.account());
}

}  // namespace unisono::train
