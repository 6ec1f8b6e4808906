#include "base/small_file.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/unique_fd.h"

namespace unisono {

std::string read_small_file(const std::string& path, std::size_t bytes_max) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(bytes_max, '\0');
  std::size_t size = 0;
  while (file && size < bytes_max) {
    const ssize_t bytes = ::read(file.get(), text.data() + size, bytes_max - size);
    if (bytes <= 0) break;
    size += static_cast<std::size_t>(bytes);
  }
  text.resize(size);
  return text;
}

std::string first_line(const std::string& path, std::size_t bytes_max) {
  const std::string text = read_small_file(path, bytes_max);
  return text.substr(0, text.find('\n'));
}

}  // namespace unisono
