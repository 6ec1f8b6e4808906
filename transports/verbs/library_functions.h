// Looks up functions of a library that was found at run time. Any thread.
#pragma once

#include <dlfcn.h>

#include <string>

namespace unisono::verbs {

/// Null where the library lacks it.
template <typename Function>
void find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
}

/// Adds the name to `missing` where the library lacks it.
template <typename Function>
void require(void* library, const char* name, Function* function, std::string* missing) {
  find(library, name, function);
  if (*function == nullptr) *missing += (missing->empty() ? "" : ", ") + std::string(name);
}

}  // namespace unisono::verbs
