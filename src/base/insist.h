// What has to be done also where memory is used up: others may give some back.
#pragma once

#include <chrono>
#include <new>
#include <thread>

namespace unisono {

/// Does `step` until it does not throw std::bad_alloc, for a tenth of a second. False: it did until
/// the end.
template <typename Step>
bool insist(const Step& step) {
  constexpr int kAttempts = 100;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    try {
      step();
      return true;
    } catch (const std::bad_alloc&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return false;
}

}  // namespace unisono
