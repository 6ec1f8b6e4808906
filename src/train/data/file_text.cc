#include "train/data/file_text.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <stdexcept>

namespace unisono::train {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kTextBlockBytes = 64 * 1024;

[[noreturn]] void fail(const std::string& path, const std::string& what) {
  throw std::runtime_error(path + ": " + what);
}

}  // namespace

std::vector<std::string> collect_files(const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (const std::string& path : paths) {
    std::error_code error;
    const fs::file_status status = fs::status(path, error);
    if (fs::is_regular_file(status)) {
      names.push_back(path);
    } else if (fs::is_directory(status)) {
      for (const fs::directory_entry& entry : fs::directory_iterator(path, error)) {
        std::error_code ignored;  // a broken link is no regular file
        if (entry.is_regular_file(ignored)) names.push_back(entry.path().string());
      }
      if (error) fail(path, error.message());
    } else {
      fail(path, fs::exists(status) ? "neither a file nor a folder"
                                    : "no such file; name a text by --data FILE");
    }
  }
  std::sort(names.begin(), names.end());
  std::vector<std::string> files;
  std::set<std::string> seen;
  for (const std::string& name : names) {
    std::error_code error;
    std::string file = fs::canonical(name, error).string();
    if (error) fail(name, error.message());
    if (seen.insert(file).second) files.push_back(std::move(file));
  }
  if (files.empty()) {
    throw std::runtime_error((paths.empty() ? std::string("no text") : paths[0]) +
                             ": there are no files in it; name a text by --data FILE");
  }
  return files;
}

FileText::FileText(std::vector<std::string> files) {
  std::uint64_t begin = 0;
  for (std::string& file : files) {
    const std::uint64_t end = begin + InputFile(file).bytes();
    parts_.push_back({.path = std::move(file), .begin = begin, .end = end});
    begin = end;
  }
}

std::size_t FileText::part_of(std::uint64_t offset) const {
  const auto part = std::upper_bound(parts_.begin(), parts_.end(), offset,
                                     [](std::uint64_t at, const Part& p) { return at < p.end; });
  return static_cast<std::size_t>(part - parts_.begin());
}

void FileText::scan(const std::function<void(std::span<const std::uint8_t>)>& take) const {
  Reader reader(*this);
  std::vector<std::uint8_t> block(kTextBlockBytes);
  for (std::uint64_t at = 0; at < size();) {
    const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(block.size(), size() - at));
    reader.read(at, std::span(block).first(part));
    take(std::span(block).first(part));
    at += part;
  }
}

// The block of one file that begins at `offset`.
void FileText::Reader::fill(std::uint64_t offset) {
  const std::size_t index = text_.part_of(offset);
  const Part& part = text_.parts_.at(index);
  if (!file_ || index != open_part_) {
    file_.emplace(part.path);
    open_part_ = index;
  }
  block_.resize(
      static_cast<std::size_t>(std::min<std::uint64_t>(kTextBlockBytes, part.end - offset)));
  block_begin_ = offset;
  file_->read(offset - part.begin, block_);
}

void FileText::Reader::read(std::uint64_t offset, std::span<std::uint8_t> out) {
  while (!out.empty()) {
    if (offset < block_begin_ || offset >= block_begin_ + block_.size()) fill(offset);
    const std::size_t from = static_cast<std::size_t>(offset - block_begin_);
    const std::size_t part = std::min(out.size(), block_.size() - from);
    std::copy_n(block_.begin() + static_cast<std::ptrdiff_t>(from), part, out.begin());
    offset += part;
    out = out.subspan(part);
  }
}

}  // namespace unisono::train
