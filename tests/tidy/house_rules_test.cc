// Rules that a compiler does not know: where the environment is read, what public headers may
// show, how long files and lines are, which files a README has to name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <regex>

#include "config/config.h"
#include "tests/tidy/source_tree.h"

namespace unisono::test {
namespace {

constexpr std::size_t kFileLinesMax = 600;
constexpr std::size_t kLineColumnsMax = 100;

// The part before a comment; strings that hold "//" do not matter to the words looked for here.
std::string code_of(const std::string& line) { return line.substr(0, line.find("//")); }

// Characters, not bytes: continuation bytes of UTF-8 do not count.
std::size_t columns(const std::string& line) {
  return static_cast<std::size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

bool is_shipped(const SourceFile& file) { return !file.is_in("tests") && !file.is_in("bench"); }

TEST(HouseRules, TheTreeIsReadAtAll) {
  EXPECT_GT(source_files().size(), 100u);
  EXPECT_TRUE(std::any_of(source_files().begin(), source_files().end(), [](const SourceFile& f) {
    return f.path == "include/unisono/communicator.h";
  }));
}

TEST(HouseRules, OnlyTheConfigurationReadsTheEnvironment) {
  const std::regex reads(R"(\b(getenv|secure_getenv|environ)\b)");
  for (const SourceFile& file : source_files()) {
    if (!is_shipped(file) || file.is_in("src/config")) continue;
    if (file.path == "tools/common/environment.cc") continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      const std::string code = code_of(file.lines[i]);
      if (code.find("env") == std::string::npos) continue;  // a regex takes long to say so
      EXPECT_FALSE(std::regex_search(code, reads))
          << place(file, i + 1) << ": read a row of src/config/config.cc instead";
    }
  }
}

// True where `code` calls `function` as such, and no member or other function that ends like it.
bool calls(const std::string& code, const std::string& function) {
  const std::size_t at = code.find(function + "(");
  if (at == std::string::npos) return false;
  const char before = at == 0 ? ' ' : code[at - 1];
  return std::isalnum(static_cast<unsigned char>(before)) == 0 && before != '_' && before != '.' &&
         before != '>';
}

// A program that another thread starts at that moment would inherit the descriptor.
TEST(HouseRules, DescriptorsCloseOnExec) {
  for (const SourceFile& file : source_files()) {
    if (!is_shipped(file)) continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      for (const char* function : {"dup", "::accept", "pipe", "epoll_create", "mkstemp"}) {
        EXPECT_FALSE(calls(code_of(file.lines[i]), function))
            << place(file, i + 1) << ": take the call that has a flag for it, as F_DUPFD_CLOEXEC";
      }
    }
  }
}

// Standard headers have neither a folder nor an extension.
TEST(HouseRules, PublicHeadersShowOnlyTheStandardLibraryAndThemselves) {
  for (const SourceFile& file : source_files()) {
    if (!file.is_in("include/unisono")) continue;
    for (const Include& include : includes_of(file)) {
      const bool is_own = include.quoted && include.name.starts_with("unisono/");
      const bool is_standard =
          !include.quoted && include.name.find_first_of("/.") == std::string::npos;
      // A header of its own for those who have cereal.
      const bool is_cereal =
          file.path == "include/unisono/objects_cereal.h" && include.name.starts_with("cereal/");
      // The C API is for other languages than C++.
      const bool is_of_c = file.path == "include/unisono/c_values.h" && !include.quoted &&
                           (include.name == "stddef.h" || include.name == "stdint.h");
      EXPECT_TRUE(is_own || is_standard || is_cereal || is_of_c)
          << place(file, include.line) << ": users would need " << include.name;
    }
  }
}

// "-inl.h" marks what Highway includes once for each instruction set.
TEST(HouseRules, HeadersAreIncludedOnce) {
  for (const SourceFile& file : source_files()) {
    if (!file.path.ends_with(".h") || file.path.ends_with("-inl.h")) continue;
    EXPECT_EQ(std::count(file.lines.begin(), file.lines.end(), "#pragma once"), 1) << file.path;
  }
}

TEST(HouseRules, FilesHaveOneReasonToExist) {
  for (const SourceFile& file : source_files()) {
    EXPECT_LE(file.lines.size(), kFileLinesMax) << file.path << ": split it";
  }
}

TEST(HouseRules, LinesFitTheScreen) {
  for (const SourceFile& file : source_files()) {
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      if (file.lines[i].starts_with("#include")) continue;
      EXPECT_LE(columns(file.lines[i]), kLineColumnsMax)
          << place(file, i + 1) << ": run ./dev format";
    }
  }
}

bool holds(const SourceFile& file, const std::string& text) {
  return std::any_of(file.lines.begin(), file.lines.end(),
                     [&](const std::string& line) { return line.find(text) != std::string::npos; });
}

// Where no list can be made from kTransports.
TEST(HouseRules, EveryTransportIsNamedToUsers) {
  const auto header = std::find_if(source_files().begin(), source_files().end(), [](const auto& f) {
    return f.path == "include/unisono/options.h";
  });
  ASSERT_NE(header, source_files().end());
  for (const std::string_view name : kTransports) {
    EXPECT_TRUE(holds(readmes().front(), '`' + std::string(name) + '`')) << "README.md: " << name;
    EXPECT_TRUE(holds(*header, '"' + std::string(name) + '"')) << header->path << ": " << name;
  }
}

// The tables of a README with a row for each file. A column "files" is of groups of them.
std::string rows_of_files(const SourceFile& readme) {
  std::string rows;
  bool in_table = false;
  for (const std::string& line : readme.lines) {
    in_table = line.starts_with("| file |") || (in_table && line.starts_with("|"));
    if (in_table) rows += line.substr(0, line.find('|', 1)) + '\n';
  }
  return rows;
}

// "kernels_bits" is named by itself, as a whole word, or by "kernels_*".
bool is_named(const std::string& rows, const std::string& stem) {
  if (std::regex_search(rows, std::regex("\\b" + stem + "\\b"))) return true;
  for (std::size_t length = 1; length < stem.size(); ++length) {
    if (rows.find('`' + stem.substr(0, length) + '*') != std::string::npos) return true;
  }
  return false;
}

TEST(HouseRules, AReadmeWithATableOfFilesNamesEachOfItsFolder) {
  for (const SourceFile& readme : readmes()) {
    const std::string rows = rows_of_files(readme);
    const std::string folder = readme.path.substr(0, readme.path.find_last_of('/'));
    if (rows.empty() ||
        (!readme.is_in("src") && !readme.is_in("transports") && !readme.is_in("bindings")))
      continue;
    for (const SourceFile& file : source_files()) {
      const std::string name = file.path.substr(file.path.find_last_of('/') + 1);
      if (folder + '/' + name != file.path) continue;
      EXPECT_TRUE(is_named(rows, name.substr(0, name.find_last_of('.'))))
          << readme.path << " says nothing of " << name;
    }
  }
}

}  // namespace
}  // namespace unisono::test
