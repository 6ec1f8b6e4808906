#include "train/data/byte_stream.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <new>
#include <vector>

namespace unisono::train {

namespace {

// Deflate stores at most 258 bytes in two bits.
constexpr std::uint64_t kInflationMax = 1032;
constexpr std::size_t kPackedBlockBytes = 64 * 1024;

}  // namespace

struct ByteStream::Inflater {
  z_stream stream{};
  std::vector<std::uint8_t> block = std::vector<std::uint8_t>(kPackedBlockBytes);
  bool is_at_member_end = false;

  Inflater() {
    // 16: a gzip header and no other.
    if (inflateInit2(&stream, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  ~Inflater() { inflateEnd(&stream); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
};

ByteStream::ByteStream(const std::string& path) : file_(path) {
  std::array<std::uint8_t, 2> magic{};
  is_gzip_ = file_.read_some(0, magic) == magic.size() && magic[0] == 0x1f && magic[1] == 0x8b;
  if (is_gzip_) inflater_ = std::make_unique<Inflater>();
}

ByteStream::~ByteStream() = default;

std::uint64_t ByteStream::bytes_max() const {
  return is_gzip_ ? file_.bytes() * kInflationMax : file_.bytes();
}

std::size_t ByteStream::read_file(std::span<std::uint8_t> out) {
  const std::size_t got = file_.read_some(at_, out);
  at_ += got;
  return got;
}

// Files of several members (pigz, bgzip) are read as one.
std::size_t ByteStream::inflate_some(std::span<std::uint8_t> out) {
  z_stream& stream = inflater_->stream;
  // zlib counts in unsigned int.
  const std::size_t room = std::min<std::size_t>(out.size(), 1U << 30);
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(room);
  while (stream.avail_out == room) {
    if (stream.avail_in == 0) {
      const std::size_t got = read_file(inflater_->block);
      if (got == 0 && inflater_->is_at_member_end) return 0;
      if (got == 0) file_.fail("the compressed file is cut short; install or copy it again");
      stream.next_in = inflater_->block.data();
      stream.avail_in = static_cast<uInt>(got);
    }
    if (inflater_->is_at_member_end) inflateReset(&stream);
    inflater_->is_at_member_end = false;
    const int status = inflate(&stream, Z_NO_FLUSH);
    if (status == Z_STREAM_END) {
      inflater_->is_at_member_end = true;
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      file_.fail(std::string("the compressed file is damaged or something follows it (") +
                 (stream.msg != nullptr ? stream.msg : "zlib gives no reason") + ")");
    }
  }
  return room - stream.avail_out;
}

std::size_t ByteStream::read_some(std::span<std::uint8_t> out) {
  const std::size_t got = is_gzip_ ? inflate_some(out) : read_file(out);
  given_ += got;
  return got;
}

void ByteStream::read(std::span<std::uint8_t> out) {
  const std::uint64_t wanted = given_ + out.size();
  while (!out.empty()) {
    const std::size_t got = read_some(out);
    if (got == 0) {
      file_.fail("ends after " + std::to_string(given_) + " bytes where at least " +
                 std::to_string(wanted) + " belong; install or copy it again");
    }
    out = out.subspan(got);
  }
}

void ByteStream::skip(std::uint64_t bytes) {
  if (!is_gzip_) {
    if (bytes > file_.bytes() - std::min(given_, file_.bytes())) {
      file_.fail("is shorter than " + std::to_string(given_ + bytes) + " bytes");
    }
    at_ += bytes;
    given_ += bytes;
    return;
  }
  std::vector<std::uint8_t> waste(
      static_cast<std::size_t>(std::min<std::uint64_t>(bytes, kPackedBlockBytes)));
  while (bytes > 0) {
    const std::size_t part = static_cast<std::size_t>(std::min<std::uint64_t>(bytes, waste.size()));
    read(std::span(waste).first(part));
    bytes -= part;
  }
}

void ByteStream::expect_end() {
  std::array<std::uint8_t, 1> more{};
  if (read_some(more) != 0) {
    file_.fail("more than the " + std::to_string(given_ - 1) +
               " bytes that its header announces; install or copy it again");
  }
}

}  // namespace unisono::train
