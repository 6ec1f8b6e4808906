#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>

namespace unisono::log {
namespace {

std::atomic<Hook> hook{nullptr};

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>(
        "unisono", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    made->set_pattern("%H:%M:%S.%e %n[%P] %^%l%$: %v");
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarning:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
    case Level::kOff:
      return spdlog::level::off;
  }
  return spdlog::level::off;
}

}  // namespace

void set_hook(Hook new_hook) { hook.store(new_hook); }
void set_level(Level level) { logger().set_level(to_spdlog(level)); }

void write(Level level, std::string_view message) {
  if (level >= Level::kWarning) {
    if (Hook current = hook.load()) current(level, message);
  }
  logger().log(to_spdlog(level), "{}", message);
}

}  // namespace unisono::log
