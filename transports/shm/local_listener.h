// Where a rank is reached by the others of its host.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/result.h"

namespace unisono::shm {

/// The socket by which the other ranks of the host reach this one. It is opened before the rank
/// joins its job, because its address is in the job's table.
class LocalListener {
 public:
  static Result<std::unique_ptr<LocalListener>> open();
  ~LocalListener();
  const std::string& address() const { return address_; }
  int fd() const { return fd_; }

 private:
  LocalListener(int fd, std::string address) : fd_(fd), address_(std::move(address)) {}
  int fd_;
  std::string address_;
};

}  // namespace unisono::shm
