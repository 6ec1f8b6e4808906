// What an exception says, whatever it is. Pure; safe from any thread.
#pragma once

#include <exception>
#include <string>

namespace unisono::train {

inline std::string describe(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const std::exception& known) {
    return known.what();
  } catch (...) {
    return "something that is no std::exception";
  }
}

}  // namespace unisono::train
