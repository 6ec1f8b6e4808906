// Result<T>: a value or the Status that says why there is none. Spelled like the part of
// std::expected that is used here, so that it can become an alias when C++23 may be required.
#pragma once

#include <type_traits>
#include <utility>
#include <variant>

#include "base/assert.h"
#include "unisono/error.h"

namespace unisono {

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: implicit on purpose
  Result(Status error) : state_(std::in_place_index<1>, std::move(error)) {  // NOLINT
    UNISONO_ASSERT(!std::get<1>(state_).ok(), "a Result without a value needs an error");
  }

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  T& value() & { return get(); }
  const T& value() const& { return const_cast<Result*>(this)->get(); }
  T&& value() && { return std::move(get()); }
  T& operator*() & { return get(); }
  const T& operator*() const& { return const_cast<Result*>(this)->get(); }
  T&& operator*() && { return std::move(get()); }
  T* operator->() { return &get(); }
  const T* operator->() const { return &const_cast<Result*>(this)->get(); }
  const Status& error() const {
    UNISONO_ASSERT(!has_value(), "error() of a Result that has a value");
    return std::get<1>(state_);
  }
  /// The error, or ok.
  Status status() const { return has_value() ? Status() : std::get<1>(state_); }

 private:
  T& get() {
    UNISONO_ASSERT(has_value(), "value() of a Result that holds an error");
    return std::get<0>(state_);
  }
  std::variant<T, Status> state_;
};

}  // namespace unisono

#define UNISONO_CONCAT_INNER(a, b) a##b
#define UNISONO_CONCAT(a, b) UNISONO_CONCAT_INNER(a, b)

/// UNISONO_TRY(expression): returns the error of a Status or Result from the enclosing function.
#define UNISONO_TRY(...)                                            \
  do {                                                              \
    if (auto unisono_try_ = (__VA_ARGS__); !unisono_try_)           \
      return ::unisono::detail::as_status(std::move(unisono_try_)); \
  } while (false)

/// UNISONO_ASSIGN(auto x, expression): x takes the value of a Result, or its error is returned.
#define UNISONO_ASSIGN(declaration, ...)                          \
  auto UNISONO_CONCAT(unisono_result_, __LINE__) = (__VA_ARGS__); \
  if (!UNISONO_CONCAT(unisono_result_, __LINE__))                 \
    return UNISONO_CONCAT(unisono_result_, __LINE__).error();     \
  declaration = std::move(*UNISONO_CONCAT(unisono_result_, __LINE__))

namespace unisono::detail {
inline Status as_status(Status status) { return status; }
template <typename T>
Status as_status(Result<T> result) {
  return result.error();
}
}  // namespace unisono::detail
