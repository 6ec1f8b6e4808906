// What every call of the process group is between its first line and the work that it returns.
#pragma once

#include <c10/core/Stream.h>

#include <memory>
#include <optional>
#include <vector>

#include "csrc/backend.h"
#include "csrc/tensors.h"

namespace unisono_torch {

inline unisono_call call_of(unisono_collective collective) {
  unisono_call call = UNISONO_CALL_INIT;
  call.collective = collective;
  return call;
}

// A work in the making, from the first line of a call on.
struct UnisonoBackend::Started {
  Started(UnisonoBackend* backend, const char* operation)
      : unfinished(backend), name(operation), size(backend->getSize()) {}

  Unfinished unfinished;
  const char* name;
  const int size;  // of the group that buffers are checked for
  std::shared_ptr<Lent> lent = std::make_shared<Lent>();
  c10::intrusive_ptr<UnisonoWork> work;
  unisono_call_options options = UNISONO_CALL_OPTIONS_INIT;
  // Of tensors of a GPU: what the call comes behind. Its work is in there too, but for messages,
  // which would hold each other up there: one that is received first waits for one that is sent.
  std::optional<c10::Stream> stream{};
  bool is_numbered = false;

  unisono_call reduction(unisono_collective collective, const at::Tensor& tensor,
                         const c10d::ReduceOp& op) {
    unisono_call call = call_of(collective);
    call.type = type_of(tensor, name);
    call.op = op_of(op, tensor, name, &options);
    return call;
  }

  // Where the call reads or writes a tensor: in place where it is contiguous, else in a copy.
  const void* read(const at::Tensor& tensor) {
    lent->tensors.push_back(tensor.contiguous());
    return lent->tensors.back().data_ptr();
  }
  void* write(const at::Tensor& tensor, bool reads_it_too) {
    if (tensor.is_contiguous()) {
      lent->tensors.push_back(tensor);
      return tensor.data_ptr();
    }
    check_writable(tensor, name);
    at::Tensor room =
        reads_it_too ? tensor.contiguous().view({-1}) : flat_like(tensor, tensor.numel());
    lent->copies.push_back({room, {tensor}});
    return room.data_ptr();
  }
  // The same for blocks of all ranks.
  const void* read_all(const Tensors& tensors) {
    lent->tensors.push_back(joined(tensors, name));
    return lent->tensors.back().data_ptr();
  }
  void* write_all(const Tensors& tensors) {
    at::Tensor room = room_for(tensors, name);
    lent->copies.push_back({room, tensors});
    return room.data_ptr();
  }
  const size_t* keep(std::vector<size_t> counts) {
    lent->counts.push_back(std::move(counts));
    return lent->counts.back().data();
  }
};

}  // namespace unisono_torch
