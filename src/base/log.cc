#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <mutex>

#include "base/per_process.h"

namespace unisono::log {
namespace {

std::atomic<Hook> hook{nullptr};
std::atomic<Level> level_shown{Level::kWarning};

struct Logger {
  std::mutex mutex;
  spdlog::logger lines{"unisono", std::make_shared<spdlog::sinks::stderr_color_sink_st>()};

  Logger() {
    lines.set_pattern("%H:%M:%S.%e %n[%P] %^%l%$: %v");
    lines.set_level(spdlog::level::trace);
  }
};
constinit PerProcess<Logger> logger;

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
void set_level(Level level) { level_shown.store(level, std::memory_order_relaxed); }

void write(Level level, std::string_view message) {
  if (level >= Level::kWarning) {
    if (Hook current = hook.load()) current(level, message);
  }
  if (level < level_shown.load(std::memory_order_relaxed)) return;
  Logger& shown = logger.get();
  const std::lock_guard lock(shown.mutex);
  shown.lines.log(to_spdlog(level), "{}", message);
}

}  // namespace unisono::log
