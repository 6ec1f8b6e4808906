#include "config/environment.h"

#include <cstdlib>
#include <string_view>

#include "config/value_text.h"

namespace unisono::config {

namespace {

const char* unless_empty(const char* value) {
  return value != nullptr && *value != '\0' ? value : nullptr;
}

}  // namespace

const char* read_variable(const std::string& name) {
  return unless_empty(std::getenv(name.c_str()));
}

const char* read_own_variable(const std::string& name) {
  return unless_empty(secure_getenv(name.c_str()));
}

Status read_integer(const std::string& name, int low, int high, int* out) {
  const char* text = read_variable(name);
  if (text == nullptr) return Status();
  if (const Status parsed = parse_integer(std::string_view(text), low, high, out); !parsed) {
    return Status(ErrorCode::kInvalidArgument,
                  name + "=" + text + ": expected " + parsed.message());
  }
  return Status();
}

}  // namespace unisono::config
