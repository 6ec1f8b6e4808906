// Counts from the lengths of arrays, as the typed forms of the C++ API derive them.
#pragma once

#include <cstddef>

#include "unisono/call.h"

namespace unisono::python {

/// Lengths in elements of the call's type.
struct Lengths {
  std::size_t in = 0;
  std::size_t out = 0;
};

bool reduces(Collective collective);
bool has_root(Collective collective);
/// Whether this rank must give an input. Where blocks are uneven one of no elements may be missing.
bool needs_input(const Call& call, Rank rank);

/// Sets the count of a call on two buffers. Throws Error where one of them is too short.
void fit_two_buffers(Call* call, const Lengths& lengths, Rank rank, int ranks);

/// Makes it an in-place call on call->out, which has this length: this rank's block lies in it
/// where the in-place rule says. Throws Error where it is too short.
void fit_in_place(Call* call, std::size_t length, Rank rank, int ranks);

}  // namespace unisono::python
