// Several files as one text, read where it is needed. Immutable apart from FileText::Reader, of
// which every thread makes its own. Throws std::runtime_error with the path.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/data/input_file.h"

namespace unisono::train {

/// The regular files that `paths` name, folders for the files in them: links followed, each file
/// once, in the order of the sorted names. At least one.
std::vector<std::string> collect_files(const std::vector<std::string>& paths);

class FileText {
 public:
  explicit FileText(std::vector<std::string> files);

  std::uint64_t size() const { return parts_.back().end; }
  std::size_t files() const { return parts_.size(); }
  /// Gives all of it in order, in blocks.
  void scan(const std::function<void(std::span<const std::uint8_t>)>& take) const;

  /// Reads anywhere, ascending is fast: a block of the file is kept.
  class Reader {
   public:
    explicit Reader(const FileText& text) : text_(text) {}
    /// The bytes from `offset` on; all of them lie in the text.
    void read(std::uint64_t offset, std::span<std::uint8_t> out);

   private:
    void fill(std::uint64_t offset);

    const FileText& text_;
    std::optional<InputFile> file_;
    std::size_t open_part_ = 0;
    std::vector<std::uint8_t> block_;
    std::uint64_t block_begin_ = 0;
  };

 private:
  struct Part {
    std::string path;
    std::uint64_t begin, end;  ///< in the text
  };
  std::size_t part_of(std::uint64_t offset) const;

  std::vector<Part> parts_;
};

}  // namespace unisono::train
