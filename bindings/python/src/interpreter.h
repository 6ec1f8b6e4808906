// The interpreter as the library's threads see it: when they may take the GIL, and who destroys
// what belongs to Python.
//
// The library runs callbacks and gives buffers back on threads of its own. Threads that ask for the
// GIL of an interpreter that ends are ended by it, which no C++ frame survives. Hence one door:
// with_interpreter() opens while the interpreter lives, and close_interpreter(), which `atexit`
// calls, waits for those inside and shuts it. No call of the library is made with the GIL held.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <functional>
#include <memory>

namespace nb = nanobind;

namespace unisono::python {

/// Something that may only be destroyed by a thread that has the GIL.
class Mortal {
 public:
  virtual ~Mortal() = default;
};

/// Runs `action` with the GIL, from any thread that does not have it. False, without running it,
/// when the interpreter has ended.
bool with_interpreter(const std::function<void()>& action);

/// Takes what any thread, with the GIL or without, wants destroyed. It never waits for the GIL.
void bury(std::unique_ptr<Mortal> mortal) noexcept;
/// Destroys what was buried. Needs the GIL.
void destroy_buried();

/// Counts while it lives.
class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int>& count_;
};

/// A call of the library: without the GIL. The interpreter's end waits, a second at most, for
/// threads to come back from it.
class WithoutGil {
 public:
  WithoutGil() : counted_(threads()) {}

 private:
  static std::atomic<int>& threads();
  friend void close_interpreter();

  Counted counted_;  // until the thread has the GIL again
  nb::gil_scoped_release released_;
};

/// Nothing of Python is touched by other threads once this returns. Needs the GIL, which it lets go
/// meanwhile.
void close_interpreter();

void define_interpreter(nb::module_& module);

}  // namespace unisono::python
