// Symbols of libunisono.so beside its public ones. No state.
#pragma once

/// For what the trainer, a static library of the same build, uses of the runtime.
#define UNISONO_VISIBLE __attribute__((visibility("default")))
