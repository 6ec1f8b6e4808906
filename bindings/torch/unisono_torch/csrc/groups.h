// The groups that the operators of ops.cpp run on: communicators of their own, by handle.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <string>

#include "csrc/backend.h"

namespace unisono_torch {

struct Group {
  CommPointer comm;
  int size;
};

/// The group whose handle stands in the only element of `handle`. No lock, and no allocation.
/// Throws where there is none, or it was closed.
const Group& group_of(const at::Tensor& handle, const char* operation);

/// What makes, asks and closes groups, for Python.
void add_groups(pybind11::module_& module);

}  // namespace unisono_torch
