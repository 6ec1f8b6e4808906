// Ranks that are threads, made and used by the C API alone.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "unisono/unisono.h"

namespace unisono::test {

/// Fails with the library's words where `code` is another one.
inline ::testing::AssertionResult is_code(unisono_code code, unisono_code wanted) {
  if (code == wanted) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << unisono_code_name(code) << " instead of "
                                       << unisono_code_name(wanted) << ": " << unisono_last_error();
}

inline ::testing::AssertionResult is_ok(unisono_code code) { return is_code(code, UNISONO_OK); }

using Body = std::function<void(unisono_comm* comm, int rank)>;

inline int call_body(void* context, unisono_comm* comm) {
  (*static_cast<const Body*>(context))(comm, unisono_comm_rank(comm));
  return 0;
}

/// Runs `body` as ranks 0 to n - 1.
inline void run_ranks(int n, Body body, const char* transport = nullptr) {
  unisono_spawn_options options = UNISONO_SPAWN_OPTIONS_INIT;
  options.transport = transport;
  options.timeout_ms = 20'000;
  EXPECT_TRUE(is_ok(unisono_spawn(n, call_body, &body, &options)));
}

}  // namespace unisono::test
