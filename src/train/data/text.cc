// Text as samples for a character model. A record is a sample's bytes and the one that follows
// them.
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "train/data/file_text.h"
#include "unisono/train/data.h"

namespace unisono::train {

namespace {

constexpr const char* kLicences = "/usr/share/common-licenses";
// A context is held per sample and per target; nothing useful is longer.
constexpr std::size_t kContextMax = std::size_t{1} << 20;

// Where a sample of kLines lies; its record is one byte longer.
struct Line {
  std::uint64_t begin;
  std::uint32_t length;
};

class FileTextSource : public TextSource {
 public:
  explicit FileTextSource(const TextOptions& options);

  std::size_t size() const override { return count_; }
  int classes() const override { return static_cast<int>(vocabulary_.size()); }
  Shape input_shape() const override { return {options_.context}; }
  std::size_t targets_per_sample() const override { return options_.context; }
  std::string describe() const override;
  std::size_t record_bytes_min() const override {
    return options_.unit == TextOptions::Unit::kLines ? 2 : options_.context + 1;
  }
  std::size_t record_bytes_max() const override { return options_.context + 1; }
  bool is_seekable() const override { return true; }
  void load(std::span<const std::size_t> indices, const Take& take) const override;
  void decode(Record record, std::span<float> input,
              std::span<std::int32_t> targets) const override;
  std::size_t length(Record record) const override { return record.size() - 1; }
  std::uint64_t fingerprint() const override;
  const std::string& vocabulary() const override { return vocabulary_; }
  int class_of(char byte) const override { return class_of_[static_cast<unsigned char>(byte)]; }

 private:
  void learn_vocabulary();
  void find_lines();
  std::size_t all_samples() const;
  void choose_part();
  Line place_of(std::size_t index) const;

  TextOptions options_;
  FileText text_;
  std::string vocabulary_;
  std::array<int, 256> class_of_{};
  uLong checksum_ = crc32(0, nullptr, 0);  ///< of all of the text
  std::vector<Line> lines_;
  std::size_t first_ = 0, count_ = 0;
};

FileTextSource::FileTextSource(const TextOptions& options)
    : options_(options),
      text_(collect_files(options.paths.empty() ? std::vector<std::string>{kLicences}
                                                : options.paths)) {
  if (options_.context == 0 || options_.context > kContextMax) {
    throw std::invalid_argument("a context of " + std::to_string(options_.context) +
                                " bytes: 1 to " + std::to_string(kContextMax) + " are possible");
  }
  if (!(options_.validation >= 0) || options_.validation >= 1) {
    throw std::invalid_argument("a part of " + std::to_string(options_.validation) +
                                " for validation: it is at least 0 and less than 1");
  }
  if (options_.stride == 0) options_.stride = options_.context;
  learn_vocabulary();
  if (options_.unit == TextOptions::Unit::kLines) find_lines();
  choose_part();
}

void FileTextSource::learn_vocabulary() {
  std::array<bool, 256> seen{};
  text_.scan([&](std::span<const std::uint8_t> block) {
    for (const std::uint8_t byte : block) seen[byte] = true;
    checksum_ = crc32_z(checksum_, block.data(), block.size());
  });
  // What lines are padded with, and ends the last one.
  if (options_.unit == TextOptions::Unit::kLines) seen['\n'] = true;
  class_of_.fill(-1);
  for (std::size_t byte = 0; byte < seen.size(); ++byte) {
    if (!seen[byte]) continue;
    class_of_[byte] = static_cast<int>(vocabulary_.size());
    vocabulary_.push_back(static_cast<char>(byte));
  }
}

void FileTextSource::find_lines() {
  std::uint64_t at = 0;
  Line line{.begin = 0, .length = 0};
  const auto end_line = [&] {
    if (line.length > 0) lines_.push_back(line);
    line = {.begin = at, .length = 0};
  };
  text_.scan([&](std::span<const std::uint8_t> block) {
    for (const std::uint8_t byte : block) {
      if (byte != '\n' && line.length == options_.context) end_line();
      ++at;
      if (byte == '\n') {
        end_line();
      } else {
        ++line.length;
      }
    }
  });
  end_line();
}

std::size_t FileTextSource::all_samples() const {
  if (options_.unit == TextOptions::Unit::kLines) return lines_.size();
  if (text_.size() < options_.context + 1) return 0;
  return static_cast<std::size_t>((text_.size() - options_.context - 1) / options_.stride + 1);
}

void FileTextSource::choose_part() {
  const std::size_t all = all_samples();
  const auto validation =
      static_cast<std::size_t>(std::llround(options_.validation * static_cast<double>(all)));
  const std::size_t split = all - validation;
  count_ = all;
  if (options_.part == TextOptions::Part::kValidation) {
    first_ = split;
    count_ = validation;
  } else if (options_.part == TextOptions::Part::kTrain) {
    count_ = split;
    // The target of a last window may be validation's first byte; its input may not hold it.
    while (validation > 0 && count_ > 0 && options_.unit == TextOptions::Unit::kWindows &&
           place_of(count_ - 1).begin + options_.context > place_of(split).begin) {
      --count_;
    }
  }
  if (count_ == 0) {
    throw std::runtime_error("a text of " + std::to_string(text_.size()) +
                             " bytes gives no sample of " + std::to_string(options_.context) +
                             " bytes in this part; name a longer text by --data FILE");
  }
}

Line FileTextSource::place_of(std::size_t index) const {
  if (options_.unit == TextOptions::Unit::kLines) return lines_.at(index);
  return {.begin = std::uint64_t{index} * options_.stride,
          .length = static_cast<std::uint32_t>(options_.context)};
}

std::string FileTextSource::describe() const {
  const char* part = options_.part == TextOptions::Part::kAll     ? ""
                     : options_.part == TextOptions::Part::kTrain ? " train"
                                                                  : " validation";
  return "text" + std::string(part) + ", " + std::to_string(count_) +
         (options_.unit == TextOptions::Unit::kLines ? " lines of up to " : " windows of ") +
         std::to_string(options_.context) + " bytes, " + std::to_string(text_.files()) +
         (text_.files() == 1 ? " file" : " files") + " of " + std::to_string(text_.size()) +
         " bytes, " + std::to_string(vocabulary_.size()) + " characters";
}

// Two parts, or windows in other places, may be as many samples of one text.
std::uint64_t FileTextSource::fingerprint() const {
  const std::uint64_t places[2]{first_, options_.stride};
  return crc32_z(checksum_, reinterpret_cast<const Bytef*>(places), sizeof places);
}

void FileTextSource::load(std::span<const std::size_t> indices, const Take& take) const {
  FileText::Reader reader(text_);
  std::vector<std::uint8_t> record;
  for (const std::size_t index : indices) {
    if (index >= count_) {
      throw std::out_of_range("sample " + std::to_string(index) + " asked of " +
                              std::to_string(count_));
    }
    const Line place = place_of(first_ + index);
    record.assign(place.length + std::size_t{1}, '\n');
    // The text may end without the newline that ends its last line.
    const std::uint64_t there = std::min<std::uint64_t>(record.size(), text_.size() - place.begin);
    reader.read(place.begin, std::span(record).first(static_cast<std::size_t>(there)));
    take(index, record);
  }
}

void FileTextSource::decode(Record record, std::span<float> input,
                            std::span<std::int32_t> targets) const {
  const auto known = [&](std::uint8_t byte) {
    if (class_of_[byte] < 0) {
      throw std::runtime_error("byte " + std::to_string(byte) +
                               " is not in the text that training began with");
    }
    return class_of_[byte];
  };
  if (record.size() < 2 || record.size() > record_bytes_max()) {
    throw std::runtime_error("a record of " + std::to_string(record.size()) +
                             " bytes is no sample of " + describe());
  }
  const std::size_t length = record.size() - 1;
  for (std::size_t i = 0; i < options_.context; ++i) {
    input[i] = static_cast<float>(known(i < length ? record[i] : '\n'));
    targets[i] = known(i < length ? record[i + 1] : '\n');
  }
}

}  // namespace

std::shared_ptr<const TextSource> open_text(const TextOptions& options) {
  return std::make_shared<FileTextSource>(options);
}

}  // namespace unisono::train
