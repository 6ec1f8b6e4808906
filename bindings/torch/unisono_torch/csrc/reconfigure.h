// How ranks meet again after some have died, left or come: each has a handle, which its user gives
// to the others, and they meet at that of the new rank 0. No store is needed, and none that died
// with its host is missed.
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "unisono/unisono.h"

namespace unisono_torch {

/// Where others can find this rank: a unique id of the C API, made when it is first asked for. Any
/// thread.
class MeetingPlace {
 public:
  /// The handle. The same text until renew(); sets of handles are ordered by `rank`.
  std::string handle(int rank);
  /// The id has served or never will: the next handle is another one. `is_used`: rank 0 has joined
  /// by it, else it stops listening.
  void renew(bool is_used);

 private:
  std::mutex mutex_;
  std::optional<unisono_unique_id> id_;
  std::string handle_;
};

/// The id of the handle of `rank`; throws for a text that is none. Errors have nothing of the text,
/// which contains the key of the job.
unisono_unique_id id_of_handle(const std::string& handle, int rank);

}  // namespace unisono_torch
