#include "bindings/python/src/registration.h"

#include <nanobind/stl/string.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "bindings/python/src/arrays.h"
#include "bindings/python/src/communicator.h"
#include "bindings/python/src/interpreter.h"
#include "unisono/helper_threads.h"
#include "unisono/registered_memory.h"

namespace unisono::python {
namespace {

/// An array that is kept where it is and registered, until end().
class Registration {
 public:
  Registration(Member& member, nb::handle array, int fd, std::uint64_t offset)
      : held_(std::make_unique<Held>()) {
    held_->array.borrow(array, "register", "array", Use::kWrite);
    const Inside inside(member);
    held_->memory.emplace(member.value(), held_->array.data(), held_->array.bytes(),
                          MemorySource{fd, offset});
  }
  ~Registration() {
    if (held_ != nullptr && in_user_function()) bury(std::move(held_));
  }
  Registration(const Registration&) = delete;

  /// A second thread that comes meanwhile finds it ended.
  void end() {
    std::unique_ptr<Held> ended = std::move(held_);
    if (ended == nullptr) return;
    try {
      ended->end();
    } catch (...) {
      held_ = std::move(ended);
      throw;
    }
  }

  /// Null once it has ended.
  const RegisteredMemory* memory() const { return held_ != nullptr ? &*held_->memory : nullptr; }

 private:
  struct Held : Mortal {
    ~Held() override { end(); }
    void end() {
      if (!memory) return;
      const WithoutGil released;
      memory.reset();
    }
    Array array{};
    std::optional<RegisteredMemory> memory{};
  };
  std::unique_ptr<Held> held_;
};

const char* name_of(PeerAccess access) {
  switch (access) {
    case PeerAccess::kMapped:
      return "mapped";
    case PeerAccess::kSingleCopy:
      return "single_copy";
    case PeerAccess::kCopied:
      return "copied";
  }
  return "";
}

// How others read it, why not in place, whether adapters know it, why not; None once it has ended.
nb::object describe(const Registration& registration) {
  const RegisteredMemory* const memory = registration.memory();
  if (memory == nullptr) return nb::none();
  return nb::make_tuple(name_of(memory->peer_access()), memory->reason(), memory->pinned(),
                        memory->pinned_reason());
}

/// HelperThreads that end when they are told to.
class Helpers {
 public:
  explicit Helpers(int threads) : note_(std::in_place, threads) {}
  void end() { note_.reset(); }

 private:
  std::optional<HelperThreads> note_;
};

}  // namespace

void define_registrations(nb::module_& module) {
  using namespace nb::literals;
  nb::class_<Registration>(module, "Registration")
      .def(nb::init<Member&, nb::handle, int, std::uint64_t>(), "member"_a, "array"_a, "fd"_a,
           "offset"_a)
      .def("describe", &describe)
      .def("end", &Registration::end);
  nb::class_<Helpers>(module, "Helpers")
      .def(nb::init<int>(), "threads"_a)
      .def("end", &Helpers::end);
}

}  // namespace unisono::python
