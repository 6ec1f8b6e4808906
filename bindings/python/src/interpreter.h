// The interpreter as the library's threads see it: when they may take the GIL, and who destroys
// what belongs to Python.
//
// The library runs callbacks and gives buffers back on threads of its own. Threads that ask for the
// GIL of an interpreter that ends are ended by it, which no C++ frame survives. Hence one door:
// with_interpreter() opens while the interpreter lives, and close_interpreter(), which `atexit`
// calls, waits for those inside and shuts it. No call of the library that locks or waits is made
// with the GIL held; rank, size and their like are asked with it.
//
// User operators are the exception to the rule that the library holds no lock while Python runs: it
// calls them with the lock of its engine held. Whatever their thread drops meanwhile, as a garbage
// collection does, is buried, and calls of the library are refused.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

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

/// The same for an action that may go on for long: the interpreter's end does not wait for it.
bool enter_interpreter(const std::function<void()>& action);

/// While it lives this thread runs a user operator.
class InUserFunction {
 public:
  InUserFunction();
  ~InUserFunction();
  InUserFunction(const InUserFunction&) = delete;
  InUserFunction& operator=(const InUserFunction&) = delete;

 private:
  bool was_inside_;
};

/// True while this thread runs a user operator: it must not enter the library.
bool in_user_function();

/// Takes what any thread, with the GIL or without, wants destroyed. It never waits for the GIL.
void bury(std::unique_ptr<Mortal> mortal) noexcept;
/// Destroys what was buried; in a user operator nothing. Needs the GIL.
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
/// threads to come back from it; those that come later do not return. Raises RuntimeError in a user
/// operator.
class WithoutGil {
 public:
  WithoutGil() : counted_(threads()), thread_(PyEval_SaveThread()) {}
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  static std::atomic<int>& threads();

  Counted counted_;  // until the thread has the GIL again
  PyThreadState* const thread_;
};

/// The interpreter's end waits for this thread, as for those without the GIL: it runs Python below
/// frames that an exception which ends the thread could not pass.
Counted hold_interpreter();

/// A value of the library that waits for its end.
template <typename T>
struct Dropped : Mortal {
  explicit Dropped(T&& given) : value(std::move(given)) {}
  ~Dropped() override {
    const WithoutGil released;
    const T gone = std::move(value);
  }
  T value;
};

/// Destroys what belongs to the library: without the GIL, and in a user operator later. Needs the
/// GIL.
template <typename T>
void drop(T&& value) {
  auto dropped = std::make_unique<Dropped<T>>(std::move(value));
  if (in_user_function()) bury(std::move(dropped));
}

/// Nothing of Python is touched by other threads once this returns. Needs the GIL, which it lets go
/// meanwhile.
void close_interpreter();

/// In a forked child: forgets the threads that it does not have, and what they held.
void forget_threads();

void define_interpreter(nb::module_& module);

}  // namespace unisono::python
