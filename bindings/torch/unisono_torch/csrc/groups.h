// The groups that the operators of ops.cpp run on: communicators of their own, by handle.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <string>

#include "csrc/backend.h"

namespace unisono_torch {

struct GroupSlot;

/// A group that a call uses: its communicator stays until the call is over, whoever closes the
/// group meanwhile. No lock while it is open, and no allocation.
class UsedGroup {
 public:
  /// Throws where there is no such group, or it was closed.
  UsedGroup(int64_t handle, const char* operation);
  /// The one whose handle stands in the only element of `handle`.
  UsedGroup(const at::Tensor& handle, const char* operation);
  ~UsedGroup();
  UsedGroup(const UsedGroup&) = delete;
  UsedGroup& operator=(const UsedGroup&) = delete;

  unisono_comm* comm() const;
  int size() const;

 private:
  GroupSlot& slot_;
};

/// What makes, asks and closes groups, for Python.
void add_groups(pybind11::module_& module);

}  // namespace unisono_torch
