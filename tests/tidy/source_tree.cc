#include "tests/tidy/source_tree.h"

#include <algorithm>
#include <fstream>

namespace unisono::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolders[] = {"include",  "src",   "transports", "algorithms",
                                    "bindings", "tools", "tests",      "bench"};

SourceFile read(const fs::path& path) {
  SourceFile file{.path = fs::relative(path, UNISONO_SOURCE_FOLDER).generic_string(), .lines = {}};
  std::ifstream stream(path);
  for (std::string line; std::getline(stream, line);) file.lines.push_back(line);
  return file;
}

bool is_source(const fs::path& path) {
  const fs::path extension = path.extension();
  return extension == ".h" || extension == ".hpp" || extension == ".cc" || extension == ".cpp" ||
         extension == ".cu" || extension == ".inc";
}

bool is_readme(const fs::path& path) { return path.filename() == "README.md"; }

std::vector<SourceFile> read_all(bool (*is_wanted)(const fs::path&)) {
  std::vector<SourceFile> files;
  for (const char* folder : kFolders) {
    const fs::path root = fs::path(UNISONO_SOURCE_FOLDER) / folder;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root)) {
      if (is_wanted(entry.path())) files.push_back(read(entry.path()));
    }
  }
  std::sort(files.begin(), files.end(),
            [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

std::vector<SourceFile> read_readmes() {
  std::vector<SourceFile> files = read_all(is_readme);
  files.insert(files.begin(), read(fs::path(UNISONO_SOURCE_FOLDER) / "README.md"));
  return files;
}

}  // namespace

bool SourceFile::is_in(std::string_view folder) const {
  return path.size() > folder.size() && path.starts_with(folder) && path[folder.size()] == '/';
}

const std::vector<SourceFile>& source_files() {
  static const std::vector<SourceFile> files = read_all(is_source);
  return files;
}

const std::vector<SourceFile>& readmes() {
  static const std::vector<SourceFile> files = read_readmes();
  return files;
}

std::vector<Include> includes_of(const SourceFile& file) {
  constexpr std::string_view kDirective = "#include ";
  std::vector<Include> includes;
  for (std::size_t i = 0; i < file.lines.size(); ++i) {
    const std::string_view line = file.lines[i];
    if (!line.starts_with(kDirective) || line.size() < kDirective.size() + 3) continue;
    const char open = line[kDirective.size()];
    const std::size_t begin = kDirective.size() + 1;
    const std::size_t end = line.find(open == '<' ? '>' : '"', begin);
    if (end == std::string_view::npos) continue;
    includes.push_back({.name = std::string(line.substr(begin, end - begin)),
                        .quoted = open == '"',
                        .line = i + 1});
  }
  return includes;
}

std::string place(const SourceFile& file, std::size_t line) {
  return file.path + ":" + std::to_string(line);
}

}  // namespace unisono::test
