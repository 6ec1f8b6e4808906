// Memory that a test shares with processes it forks.
#pragma once

#include <sys/mman.h>

#include <cstdlib>
#include <new>

namespace unisono::test {

/// An object that processes forked after it share, freed with the handle; aborts where there is no
/// memory.
template <typename Object>
class Shared {
 public:
  Shared() {
    void* const at =
        mmap(nullptr, sizeof(Object), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) std::abort();
    object_ = new (at) Object();
  }
  ~Shared() { munmap(object_, sizeof(Object)); }
  Shared(const Shared&) = delete;
  Object* operator->() { return object_; }
  Object& operator*() { return *object_; }

 private:
  Object* object_;
};

}  // namespace unisono::test
