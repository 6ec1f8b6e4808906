// The simulation from the command line: runs seeds and says which go wrong. See README.md.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <string>

#include "tests/sim/search.h"

// Where there is a sanitizer, whose reports end the program without a signal.
extern "C" void __sanitizer_set_death_callback(void (*callback)()) __attribute__((weak));

namespace unisono::sim {
namespace {

struct Options {
  std::uint64_t first = 1;
  std::uint64_t seeds = 100;
  double minutes = 0;
  bool shows = false;
  int failures_max = 1;
  Limits limits;
};

struct Totals {
  std::uint64_t seeds = 0, failed = 0, steps = 0, calls = 0, messages = 0, parts = 0,
                ranks_failed = 0, ranks_shrunk = 0, ranks_grown = 0;
  double virtual_seconds = 0;
};

// What a seed that ends the program, or does not end, was.
char replay[128];
constexpr unsigned kSecondsMax = 100;

void say_seed() { static_cast<void>(!::write(STDOUT_FILENO, replay, std::strlen(replay))); }

void on_end(int signal) {
  say_seed();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void say_seed_of_sudden_ends() {
  for (const int signal : {SIGABRT, SIGALRM, SIGSEGV, SIGBUS, SIGILL, SIGFPE}) {
    std::signal(signal, &on_end);
  }
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(&say_seed);
}

double seconds_since(TimePoint began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

void run_seed(std::uint64_t seed, const Options& options, Totals* totals) {
  const Case c = make_case(seed, options.limits);
  if (options.shows) fmt::print("seed {}: {}", seed, describe(c));
  const std::string how = replay_of(seed, options.limits);
  std::snprintf(replay, sizeof replay, "seed %llu ended the program; replay: %s\n",
                static_cast<unsigned long long>(seed), how.c_str());
  alarm(kSecondsMax);
  const Outcome outcome = run(c);
  alarm(0);
  ++totals->seeds;
  totals->steps += outcome.steps;
  totals->calls += static_cast<std::uint64_t>(outcome.calls_done);
  totals->messages += static_cast<std::uint64_t>(outcome.messages_done);
  totals->parts += static_cast<std::uint64_t>(outcome.parts_made);
  totals->ranks_failed += static_cast<std::uint64_t>(outcome.ranks_failed);
  totals->ranks_shrunk += static_cast<std::uint64_t>(outcome.ranks_shrunk);
  totals->ranks_grown += static_cast<std::uint64_t>(outcome.ranks_grown);
  totals->virtual_seconds += std::chrono::duration<double>(outcome.took).count();
  if (options.shows) {
    fmt::print(
        "  {} events, {:.6f} s, {} calls and {} messages done, {} ranks saw a failure, {} went "
        "on, {} grew\n",
        outcome.steps, std::chrono::duration<double>(outcome.took).count(), outcome.calls_done,
        outcome.messages_done, outcome.ranks_failed, outcome.ranks_shrunk, outcome.ranks_grown);
  }
  if (outcome.wrong.empty()) return;
  ++totals->failed;
  fmt::print("{}", report_of(seed, options.limits, outcome));
  std::fflush(stdout);
}

// Progress goes to stderr, once in a while.
void say_progress(const Options& options, const Totals& totals, TimePoint began, double* next) {
  const double past = seconds_since(began);
  if (past < *next) return;
  *next = past + 10;
  const std::string left = options.minutes > 0
                               ? fmt::format("{:.0f} s left", options.minutes * 60 - past)
                               : fmt::format("of {}", options.seeds);
  fmt::print(stderr, "sim: {} seeds, {} wrong, {}\n", totals.seeds, totals.failed, left);
}

int search(const Options& options) {
  const TimePoint began = Clock::now();
  Totals totals;
  double next = 10;
  for (std::uint64_t seed = options.first;; ++seed) {
    const bool is_over = options.minutes > 0 ? seconds_since(began) >= options.minutes * 60
                                             : totals.seeds == options.seeds;
    if (is_over || totals.failed >= static_cast<std::uint64_t>(options.failures_max)) break;
    run_seed(seed, options, &totals);
    say_progress(options, totals, began, &next);
  }
  fmt::print(
      "{} seeds from {} on, {} wrong; {} events, {} calls and {} messages done, {} parts, {} ranks "
      "saw a failure, {} went on, {} grew, {:.0f} s of virtual time in {:.1f} s\n",
      totals.seeds, options.first, totals.failed, totals.steps, totals.calls, totals.messages,
      totals.parts, totals.ranks_failed, totals.ranks_shrunk, totals.ranks_grown,
      totals.virtual_seconds, seconds_since(began));
  return totals.failed == 0 ? 0 : 1;
}

int main_with(int argc, char** argv) {
  Options options;
  std::uint64_t seed = 0;
  std::string ranks;
  bool no_faults = false, shares_memory = false, grows = false;
  CLI::App app("Simulates jobs in virtual time; each seed is one job.");
  app.add_option("--first", options.first, "the first seed");
  app.add_option("--seeds", options.seeds, "how many");
  app.add_option("--minutes", options.minutes, "instead of a number: until the time is over");
  app.add_option("--seed", seed, "this one alone, and what it is");
  app.add_option("--ranks", ranks, "N, or LEAST:MOST");
  app.add_option("--failures", options.failures_max, "ends after so many wrong seeds");
  app.add_flag("--no-faults", no_faults, "nothing breaks");
  app.add_flag("--shared-memory", shares_memory, "ranks are on one host, 16 at most");
  app.add_flag("--grow", grows, "jobs grow by newcomers, and have 8 ranks at most");
  app.add_flag("--show", options.shows, "says what each seed is");
  CLI11_PARSE(app, argc, argv);
  if (seed != 0) {
    options.first = seed;
    options.seeds = 1;
    options.shows = true;
  }
  options.limits.with_faults = !no_faults;
  options.limits.shares_memory = shares_memory;
  options.limits.grows = grows;
  if (!ranks.empty()) {
    const std::size_t colon = ranks.find(':');
    options.limits.ranks_min = std::stoi(ranks);
    options.limits.ranks_max =
        colon == std::string::npos ? options.limits.ranks_min : std::stoi(ranks.substr(colon + 1));
  }
  say_seed_of_sudden_ends();
  return search(options);
}

}  // namespace
}  // namespace unisono::sim

int main(int argc, char** argv) { return unisono::sim::main_with(argc, argv); }
