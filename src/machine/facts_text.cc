#include "machine/facts_text.h"

#include <fmt/format.h>

#include <span>

#include "base/collective.h"
#include "base/fnv.h"
#include "base/number_text.h"

namespace unisono::machine {
namespace {

// The version of the text, and of what the trials were.
std::string title() { return fmt::format("unisono machine 3, trials {}\n", kTrialsVersion); }

constexpr std::size_t kWaitBytes = 64;  // a line

std::string_view name_of_way(AccessPath path) { return unisono::name_of(path); }
std::string_view name_of_way(std::string_view way) { return way; }

template <std::size_t kWays, typename Names>
void add_line(std::string& text, std::string_view what, std::size_t bytes, const Names& ways,
              const WayTimes<kWays>& times) {
  if (!has_times(times)) return;
  text += fmt::format("{} {}", what, bytes);
  for (std::size_t way = 0; way < kWays; ++way) {
    text += fmt::format(" {}={}", name_of_way(ways[way]), times[way]);
  }
  text += '\n';
}

std::string sum_line(std::string_view text) { return fmt::format("sum {:016x}\n", fnv1a_64(text)); }

Status refused(const std::string& why) {
  return Status(ErrorCode::kProtocol, "not a file of facts of this version: " + why);
}

// What stands between `name` and the end of the line, which both go from the front of the text.
bool take_line(std::string_view& text, std::string_view name, std::string_view* rest) {
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos || !text.starts_with(name) || end < name.size()) return false;
  *rest = text.substr(name.size(), end - name.size());
  text.remove_prefix(end + 1);
  return true;
}

// Numbers are checked by writing them again (parse_facts).
bool take_identity(std::string_view& text, Identity* identity) {
  std::string_view processor, kernel, host, cpus, caches, nodes, quota, ranks, processes;
  const bool has_lines = take_line(text, "processor ", &processor) &&
                         take_line(text, "kernel ", &kernel) && take_line(text, "host ", &host) &&
                         take_line(text, "cpus ", &cpus) && take_line(text, "caches ", &caches) &&
                         take_line(text, "nodes ", &nodes) && take_line(text, "quota ", &quota) &&
                         take_line(text, "ranks ", &ranks) &&
                         take_line(text, "processes ", &processes);
  if (!has_lines) return false;
  identity->processor = processor;
  identity->kernel = kernel;
  identity->host = host;
  return read_number(cpus, &identity->cpus) && read_number(caches, &identity->spread.caches) &&
         read_number(nodes, &identity->spread.nodes) && read_number(quota, &identity->quota) &&
         read_number(ranks, &identity->ranks) && read_number(processes, &identity->processes);
}

std::string_view take_word(std::string_view& line) {
  const std::size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

// Class i begins with `least << i`.
bool take_size(std::string_view& line, std::size_t least, int sizes, std::size_t* size) {
  std::size_t bytes = 0;
  if (!read_number(take_word(line), &bytes)) return false;
  for (int i = 0; i < sizes; ++i) {
    *size = static_cast<std::size_t>(i);
    if (bytes == least << i) return true;
  }
  return false;
}

template <std::size_t kWays, typename Names>
bool take_times(std::string_view line, const Names& ways, WayTimes<kWays>* times) {
  for (std::size_t way = 0; way < kWays; ++way) {
    std::string_view word = take_word(line);
    const std::string name = std::string(name_of_way(ways[way])) + "=";
    if (!word.starts_with(name)) return false;
    word.remove_prefix(name.size());
    if (!read_number(word, &(*times)[way])) return false;
  }
  return line.empty();
}

bool take_fact(std::string_view line, TrialFacts* facts) {
  std::size_t size = 0;
  const std::string_view what = take_word(line);
  if (what == "wait") {
    return take_word(line) == std::to_string(kWaitBytes) &&
           take_times(line, kWaitNames, &facts->host.waits);
  }
  if (what == "copy") {
    std::size_t bytes = 0;
    if (!read_number(take_word(line), &bytes)) return false;
    while (size < kMeasuredCopySizes && bytes_of_copy(size) != bytes) ++size;
    return size < kMeasuredCopySizes && take_times(line, kCopyNames, &facts->host.copies[size]);
  }
  if (what == "message") {
    return take_size(line, kTriedMessageMin, kMessageSizes, &size) &&
           take_times(line, kMessageWays, &facts->messages[size]);
  }
  if (what == "piece") {
    return take_size(line, kTriedPieceMin, kPieceSizes, &size) &&
           take_times(line, kPieceWays, &facts->pieces[size]);
  }
  Collective collective{};
  return what == "call" && parse(take_word(line), &collective) &&
         take_size(line, kTriedCallMin, kCallSizes, &size) &&
         take_times(line, kTriedPaths, &facts->calls[static_cast<std::size_t>(collective)][size]);
}

}  // namespace

std::string text_of(const Facts& facts) {
  std::string text = title() + text_of(facts.identity);
  add_line(text, "wait", kWaitBytes, kWaitNames, facts.trials.host.waits);
  for (std::size_t i = 0; i < kMeasuredCopySizes; ++i) {
    add_line(text, "copy", bytes_of_copy(i), kCopyNames, facts.trials.host.copies[i]);
  }
  for (std::size_t c = 0; c < facts.trials.calls.size(); ++c) {
    const std::string what = "call " + std::string(name_of(static_cast<Collective>(c)));
    for (std::size_t i = 0; i < kCallSizes; ++i) {
      add_line(text, what, kTriedCallMin << i, kTriedPaths, facts.trials.calls[c][i]);
    }
  }
  for (std::size_t i = 0; i < kMessageSizes; ++i) {
    add_line(text, "message", kTriedMessageMin << i, kMessageWays, facts.trials.messages[i]);
  }
  for (std::size_t i = 0; i < kPieceSizes; ++i) {
    add_line(text, "piece", kTriedPieceMin << i, kPieceWays, facts.trials.pieces[i]);
  }
  return text + sum_line(text);
}

Result<Facts> parse_facts(std::string_view text) {
  if (text.size() > kTextBytesMax) return refused("it is too long");
  const std::string expected = title();
  if (!text.starts_with(expected)) return refused("it begins otherwise");
  const std::string_view whole = text;
  Facts facts;
  text.remove_prefix(expected.size());
  if (!take_identity(text, &facts.identity)) return refused("it does not say of which machine");
  std::string_view line;
  while (!text.starts_with("sum ")) {
    if (!take_line(text, "", &line)) return refused("it has no end");
    if (!take_fact(line, &facts.trials)) return refused("a line says what is not known");
  }
  // Says the same of every byte, the sum's too.
  if (text_of(facts) != whole) return refused("it is damaged");
  return facts;
}

}  // namespace unisono::machine
