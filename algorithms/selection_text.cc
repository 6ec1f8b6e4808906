// The selection table as text: one row a line, columns apart by blanks, '#' begins a comment. What
// is read comes from a user's file, so its size, lines and every column are checked.
#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <initializer_list>
#include <sstream>

#include "algorithms/selection.h"
#include "base/collective.h"

namespace unisono::algorithms {
namespace {

constexpr std::size_t kTextBytesMax = std::size_t{1} << 20;
constexpr std::size_t kLineBytesMax = 1000;
constexpr std::size_t kRowsMax = 4096;
constexpr std::size_t kShownMax = 40;

constexpr std::size_t kColumnCount = 9;
constexpr std::array<std::string_view, kColumnCount> kColumns{"collective", "link",  "ranks_min",
                                                              "ranks_max",  "cores", "bytes_max",
                                                              "algorithm",  "path",  "chunk_bytes"};

using Words = std::vector<std::string_view>;

// A word of the file as an error shows it.
std::string shown(std::string_view word) {
  std::string text(word.substr(0, kShownMax));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return "'" + text + (word.size() > kShownMax ? "...'" : "'");
}

Status bad(std::size_t column, std::string_view word, const std::string& allowed) {
  return Status(ErrorCode::kInvalidArgument,
                std::string(kColumns[column]) + " " + shown(word) + " is not " + allowed);
}

Status wrong_hint(const std::string& why) {
  return Status(ErrorCode::kInvalidArgument, "UNISONO_ALGORITHM: " + why);
}

Words split(std::string_view line) {
  Words words;
  constexpr std::string_view kBlanks = " \t\r\v\f";
  line = line.substr(0, line.find('#'));
  for (std::size_t at = line.find_first_not_of(kBlanks); at != std::string_view::npos;) {
    const std::size_t end = std::min(line.find_first_of(kBlanks, at), line.size());
    words.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(kBlanks, end);
  }
  return words;
}

// A whole number up to `max`, or "any", which is `max`.
bool parse_number(std::string_view text, std::size_t max, std::size_t* out) {
  if (text == "any") {
    *out = max;
    return true;
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && *out <= max;
}

template <typename Enum>
bool parse_one_of(std::string_view text, std::initializer_list<Enum> values, Enum* out) {
  const auto found = std::find_if(values.begin(), values.end(),
                                  [&](Enum value) { return name_of(value) == text; });
  if (found != values.end()) *out = *found;
  return found != values.end();
}

std::string collective_names() {
  std::string names;
  for (int i = 0; i < static_cast<int>(Collective::kSend); ++i) {
    if (i > 0) names += ", ";
    names += unisono::name_of(static_cast<Collective>(i));
  }
  return names;
}

Status parse_ranks(const Words& words, SelectionRow* row) {
  std::size_t low = 0;
  std::size_t high = 0;
  const std::string allowed = "a number from 1 to " + std::to_string(kAnyRanks);
  if (words[2] == "any" || !parse_number(words[2], kAnyRanks, &low) || low < 1) {
    return bad(2, words[2], allowed);
  }
  if (!parse_number(words[3], kAnyRanks, &high) || high < low) {
    return bad(3, words[3], "any or a number from ranks_min to " + std::to_string(kAnyRanks));
  }
  row->ranks_min = static_cast<int>(low);
  row->ranks_max = static_cast<int>(high);
  return Status();
}

Status parse_algorithm(const Words& words, SelectionRow* row) {
  row->algorithm = std::string(words[6]);
  if (row->is_native()) {
    if (!row->any_link && row->link != Link::kShm) {
      return bad(1, words[1], "any or shm: native needs shared memory");
    }
    if (!parse(words[7], &row->path)) {
      return bad(7, words[7], "auto, window, single_copy, mapped or streamed, the paths of native");
    }
    if (words[8] != "0") return bad(8, words[8], "0: native cuts its own chunks");
    return Status();
  }
  if (find(row->collective, row->algorithm) == nullptr) {
    return bad(6, words[6],
               "an algorithm of " + std::string(unisono::name_of(row->collective)) + " (native, " +
                   names_of(row->collective) + ")");
  }
  if (words[7] != "-") return bad(7, words[7], "-: only native has a path");
  if (words[8] == "any" || !parse_number(words[8], kAnySize, &row->chunk_bytes)) {
    return bad(8, words[8], "a number of bytes, 0 for uncut blocks");
  }
  return Status();
}

Status parse_row(const Words& words, SelectionRow* row) {
  if (words.size() != kColumnCount) {
    std::string names;
    for (const std::string_view column : kColumns) {
      if (!names.empty()) names += ' ';
      names += column;
    }
    return Status(ErrorCode::kInvalidArgument, "expected " + std::to_string(kColumnCount) +
                                                   " columns (" + names + "), found " +
                                                   std::to_string(words.size()));
  }
  if (!parse(words[0], &row->collective) || is_point_to_point(row->collective)) {
    return bad(0, words[0], "a collective (" + collective_names() + ")");
  }
  row->any_link = words[1] == "any";
  if (!row->any_link &&
      !parse_one_of(words[1], {Link::kLoopback, Link::kShm, Link::kUnix, Link::kVerbs, Link::kTcp},
                    &row->link)) {
    return bad(1, words[1], "any, loopback, shm, unix, verbs or tcp");
  }
  UNISONO_TRY(parse_ranks(words, row));
  if (!parse_one_of(words[4], {Cores::kAny, Cores::kOwn, Cores::kShared}, &row->cores)) {
    return bad(4, words[4], "any, own or shared");
  }
  if (!parse_number(words[5], kAnySize, &row->bytes_max)) {
    return bad(5, words[5], "any or a number of bytes");
  }
  return parse_algorithm(words, row);
}

std::array<std::string, kColumnCount> words_of(const SelectionRow& row) {
  return {std::string(unisono::name_of(row.collective)),
          std::string(row.any_link ? "any" : name_of(row.link)),
          std::to_string(row.ranks_min),
          row.ranks_max == kAnyRanks ? "any" : std::to_string(row.ranks_max),
          std::string(name_of(row.cores)),
          row.bytes_max == kAnySize ? "any" : std::to_string(row.bytes_max),
          row.algorithm,
          std::string(row.is_native() ? unisono::name_of(row.path) : "-"),
          std::to_string(row.chunk_bytes)};
}

// Numbers stand right, names left.
bool is_number(std::size_t column) {
  return column == 2 || column == 3 || column == 5 || column == 8;
}

}  // namespace

std::string_view name_of(Link link) {
  constexpr std::array<std::string_view, 5> kNames{"loopback", "shm", "unix", "verbs", "tcp"};
  return kNames[static_cast<std::size_t>(link)];
}

std::string_view name_of(Cores cores) {
  constexpr std::array<std::string_view, 3> kNames{"any", "own", "shared"};
  return kNames[static_cast<std::size_t>(cores)];
}

std::string to_text(const SelectionRow& row) {
  std::string text;
  for (const std::string& word : words_of(row)) {
    if (!text.empty()) text += ' ';
    text += word;
  }
  return text;
}

Result<SelectionTable> SelectionTable::from_text(std::string_view text, std::string origin) {
  const auto invalid = [](const std::string& message) {
    return Status(ErrorCode::kInvalidArgument, message);
  };
  if (text.size() > kTextBytesMax) {
    return invalid("a table of more than " + std::to_string(kTextBytesMax) + " bytes");
  }
  SelectionTable table;
  table.origin_ = std::move(origin);
  int number = 0;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const std::string place = "line " + std::to_string(++number) + ": ";
    if (line.size() > kLineBytesMax) {
      return invalid(place + "longer than " + std::to_string(kLineBytesMax) + " characters");
    }
    const Words words = split(line);
    if (words.empty()) continue;
    if (table.rows_.size() == kRowsMax) {
      return invalid(place + "more than " + std::to_string(kRowsMax) + " rows");
    }
    SelectionRow row;
    if (const Status status = parse_row(words, &row); !status) {
      return invalid(place + status.message());
    }
    row.line = number;
    table.rows_.push_back(std::move(row));
  }
  const SelectionTable rest = defaults();
  table.rows_.insert(table.rows_.end(), rest.rows_.begin(), rest.rows_.end());
  return table;
}

Result<SelectionTable> SelectionTable::load(const std::string& path) {
  if (path.empty()) return defaults();
  std::ifstream file(path, std::ios::binary);
  // One byte more than is allowed, so that from_text() sees a file that is too long.
  std::string text(kTextBytesMax + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    return Status(ErrorCode::kInvalidArgument,
                  "UNISONO_TUNING=" + path + ": the file cannot be read");
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  Result<SelectionTable> table = from_text(text, path);
  if (!table) {
    return Status(ErrorCode::kInvalidArgument,
                  "UNISONO_TUNING=" + path + ", " + table.error().message());
  }
  return table;
}

Result<Hints> parse_hints(const std::string& text) {
  Hints hints;
  std::istringstream entries(text);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const std::size_t equals = entry.find('=');
    Collective collective;
    if (equals == std::string::npos) {
      return wrong_hint("'" + entry + "' is not collective=algorithm");
    }
    if (!parse(entry.substr(0, equals), &collective)) {
      return wrong_hint("no collective is called '" + entry.substr(0, equals) +
                        "'; `unisono plan --list` has them");
    }
    const std::string name = entry.substr(equals + 1);
    if (const Status known = check_hint(collective, name); !known) {
      return wrong_hint(known.message());
    }
    hints[static_cast<std::size_t>(collective)] = name;
  }
  return hints;
}

std::string SelectionTable::to_text() const {
  std::vector<std::array<std::string, kColumnCount>> lines(1);
  for (std::size_t i = 0; i < kColumnCount; ++i) lines[0][i] = kColumns[i];
  // The header is a comment.
  lines[0][0] = "# " + lines[0][0];
  for (const SelectionRow& row : rows_) lines.push_back(words_of(row));
  std::array<std::size_t, kColumnCount> widths{};
  for (const auto& line : lines) {
    for (std::size_t i = 0; i < kColumnCount; ++i) widths[i] = std::max(widths[i], line[i].size());
  }
  std::string text;
  for (const auto& line : lines) {
    std::string out;
    for (std::size_t i = 0; i < kColumnCount; ++i) {
      const std::string padding(widths[i] - line[i].size(), ' ');
      if (i > 0) out += "  ";
      out += is_number(i) ? padding + line[i] : line[i] + padding;
    }
    out.resize(out.find_last_not_of(' ') + 1);
    text += out + "\n";
  }
  return text;
}

}  // namespace unisono::algorithms
