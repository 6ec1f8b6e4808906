// The project's own sources as text, for tests of house rules. Read once, by one thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::test {

struct SourceFile {
  std::string path;  ///< relative to the repository, "src/base/result.h"
  std::vector<std::string> lines;

  bool is_in(std::string_view folder) const;  ///< "src/base" holds "src/base/result.h"
};

/// An #include line: what stands between the quotes or brackets.
struct Include {
  std::string name;
  bool quoted = false;
  std::size_t line = 0;  ///< counted from 1
};

/// Every .h, .cc, .cu and .inc of the project, in order of their paths.
const std::vector<SourceFile>& source_files();
/// Every README.md of the project in order of their paths: the repository's comes first.
const std::vector<SourceFile>& readmes();
std::vector<Include> includes_of(const SourceFile& file);
/// "src/base/result.h:12", for messages.
std::string place(const SourceFile& file, std::size_t line);

}  // namespace unisono::test
