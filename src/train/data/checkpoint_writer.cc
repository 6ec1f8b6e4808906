#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <span>
#include <stdexcept>
#include <utility>

#include "train/data/checkpoint_file.h"
#include "train/data/checkpoint_format.h"

namespace unisono::train {

namespace {

// A file that is written once from its beginning, and gone again unless it was kept.
class NewFile {
 public:
  explicit NewFile(std::string path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  template <typename T>
  void number(T value) {
    value = little_endian(value);
    add(&value, sizeof value);
  }
  void string(const std::string& text) {
    number(static_cast<std::uint32_t>(text.size()));
    add(text.data(), text.size());
  }
  void floats(std::span<const float> values);
  /// The header, when all else is written.
  void finish();
  void synchronize();
  /// Throws where another process has begun to write at the same name: its file is not whole.
  void rename_to(const std::string& path);

 private:
  bool is_in_place() const;
  void add(const void* data, std::size_t bytes);
  void flush();
  void write_at(const void* data, std::size_t bytes, std::uint64_t offset);
  void close();

  std::string path_;
  int fd_ = -1;
  std::vector<std::uint8_t> block_;
  std::uint64_t written_ = kHeaderBytes;
  uLong checksum_ = crc32(0, nullptr, 0);
};

[[noreturn]] void fail(const std::string& what, int error) {
  throw std::runtime_error(what + ": " + std::strerror(error));
}

NewFile::NewFile(std::string path) : path_(std::move(path)) {
  // Whoever has left it there may be alive and write on: not into this one.
  std::error_code none;
  if (std::filesystem::is_regular_file(std::filesystem::symlink_status(path_, none))) {
    ::unlink(path_.c_str());
  }
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd_ < 0) fail("cannot create " + path_, errno);
  block_.reserve(kBlockBytes);
}

NewFile::~NewFile() {
  if (!path_.empty() && (fd_ < 0 || is_in_place())) ::unlink(path_.c_str());
  if (fd_ >= 0) ::close(fd_);
}

bool NewFile::is_in_place() const {
  struct stat mine, there;
  return ::fstat(fd_, &mine) == 0 && ::lstat(path_.c_str(), &there) == 0 &&
         mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

void NewFile::add(const void* data, std::size_t bytes) {
  const auto* from = static_cast<const std::uint8_t*>(data);
  while (bytes > 0) {
    const std::size_t part = std::min(bytes, kBlockBytes - block_.size());
    block_.insert(block_.end(), from, from + part);
    if (block_.size() == kBlockBytes) flush();
    from += part;
    bytes -= part;
  }
}

void NewFile::floats(std::span<const float> values) {
  if constexpr (std::endian::native == std::endian::little) {
    add(values.data(), values.size_bytes());
  } else {
    for (const float value : values) number(value);
  }
}

void NewFile::flush() {
  write_at(block_.data(), block_.size(), written_);
  checksum_ = crc32_z(checksum_, block_.data(), block_.size());
  written_ += block_.size();
  block_.clear();
}

void NewFile::write_at(const void* data, std::size_t bytes, std::uint64_t offset) {
  const auto* from = static_cast<const std::uint8_t*>(data);
  while (bytes > 0) {
    const ssize_t put = ::pwrite(fd_, from, bytes, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0)
      fail("cannot write " + path_ + " beyond " + std::to_string(offset) + " bytes", errno);
    from += put;
    offset += static_cast<std::uint64_t>(put);
    bytes -= static_cast<std::size_t>(put);
  }
}

// The checksum begins with the size, which stands before the body but is known after it.
void NewFile::finish() {
  flush();
  const std::uint64_t size = little_endian(written_);
  uLong checksum = crc32_z(0, reinterpret_cast<const Bytef*>(&size), sizeof size);
  checksum = crc32_combine(checksum, checksum_, static_cast<z_off_t>(written_ - kHeaderBytes));
  std::uint8_t header[kHeaderBytes];
  const std::uint32_t words[2] = {little_endian(kCheckpointVersion),
                                  little_endian(static_cast<std::uint32_t>(checksum))};
  std::memcpy(header, kCheckpointMagic.data(), kCheckpointMagic.size());
  std::memcpy(header + 8, words, sizeof words);
  std::memcpy(header + kUncheckedBytes, &size, sizeof size);
  write_at(header, sizeof header, 0);
}

void NewFile::synchronize() {
  if (::fsync(fd_) != 0) fail("cannot synchronize " + path_, errno);
}

void NewFile::close() {
  // Network file systems tell of a full disk here.
  if (::close(std::exchange(fd_, -1)) != 0) fail("cannot write " + path_, errno);
}

void NewFile::rename_to(const std::string& path) {
  if (!is_in_place()) {
    throw std::runtime_error("another process has begun to write " + path_);
  }
  close();
  if (::rename(path_.c_str(), path.c_str()) != 0) {
    fail("cannot rename " + path_ + " to " + path, errno);
  }
  path_.clear();
}

template <typename Named>
void write_tensors(NewFile& file, const std::vector<Named>& tensors) {
  file.number(static_cast<std::uint32_t>(tensors.size()));
  for (const auto& tensor : tensors) {
    if (element_count(tensor.shape) != tensor.values.size()) {
      throw std::invalid_argument("checkpoint: " + tensor.name + " of shape " +
                                  to_string(tensor.shape) + " has " +
                                  std::to_string(tensor.values.size()) + " values");
    }
    file.string(tensor.name);
    file.number(static_cast<std::uint32_t>(tensor.shape.size()));
    for (const std::size_t extent : tensor.shape) file.number(std::uint64_t{extent});
    file.floats(tensor.values);
  }
}

void write_body(NewFile& file, const Checkpoint& checkpoint) {
  if (checkpoint.order.size() > kOrderBytesMax) {
    throw std::invalid_argument("checkpoint: the order \"" + checkpoint.order + "\" has " +
                                std::to_string(checkpoint.order.size()) + " bytes; at most " +
                                std::to_string(kOrderBytesMax));
  }
  file.string(checkpoint.model);
  write_tensors(file, checkpoint.parameters);
  write_tensors(file, checkpoint.buffers);
  file.string(checkpoint.optimizer);
  file.number(checkpoint.optimizer_steps);
  file.number(static_cast<std::uint32_t>(checkpoint.optimizer_state.size()));
  for (const Checkpoint::NamedArray& array : checkpoint.optimizer_state) {
    file.string(array.name);
    file.number(std::uint64_t{array.values.size()});
    file.floats(array.values);
  }
  file.number(checkpoint.epoch);
  file.number(checkpoint.step);
  file.number(checkpoint.step_samples);
  file.string(checkpoint.order);
  file.number(checkpoint.sampler_seed);
}

// Without it a power failure may forget the rename.
void synchronize_folder(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;  // a folder that may be written but not read: the rename itself is done
  ::fsync(fd);
  ::close(fd);
}

}  // namespace

void write_checkpoint_file(const std::string& path, const Checkpoint& checkpoint,
                           const std::function<void(SaveStage)>& reached) {
  const auto reach = [&](SaveStage stage) {
    if (reached) reached(stage);
  };
  try {
    NewFile file(path + ".tmp");
    reach(SaveStage::kOpened);
    write_body(file, checkpoint);
    file.finish();
    reach(SaveStage::kWritten);
    file.synchronize();
    reach(SaveStage::kSynchronized);
    file.rename_to(path);
  } catch (const std::runtime_error& error) {
    throw std::runtime_error("no checkpoint was saved: " + std::string(error.what()) +
                             "; the previous one, if any, is unchanged. Make room or name another "
                             "folder");
  }
  synchronize_folder(path);
  reach(SaveStage::kRenamed);
}

}  // namespace unisono::train
