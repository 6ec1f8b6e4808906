// Where a rank's record lies: a file, memory that the launcher holds, or memory of the process.
//
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/record_setting.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace unisono::recorder {

/// As UNISONO_RECORDER, UNISONO_RECORDER_MEMORY and UNISONO_TRACE say.
struct RecordPlace {
  RecordSetting setting;
  int handed_fd = -1;        ///< the launcher's memory, if this process has it still
  std::uint64_t inode = 0;   ///< of that
  std::string trace_folder;  ///< where a trace is written when the rank leaves; empty: nowhere
};

/// A new file of this user alone, mode 0600, in the place of an old one of that name. A folder that
/// is not there is made, mode 0700; what it lies in is not. kSystem names the setting `variable`,
/// the folder and what is wrong with it.
Result<UniqueFd> create_rank_file(std::string_view variable, const std::string& folder,
                                  const std::string& name);

/// kRecordBytes of zeros, shared with whoever opens them.
class RecordMemory {
 public:
  /// Of this rank's own file in the folder of `place.setting`: mode 0600, `name` within it, an old
  /// one of this user is replaced; or the launcher's memory where it is what was announced and no
  /// other process uses it; or a memfd. kSystem names the folder or call that failed, and the
  /// remedy.
  static Result<RecordMemory> make(const RecordPlace& place, const std::string& name);
  RecordMemory(RecordMemory&& other) noexcept;
  RecordMemory& operator=(RecordMemory&&) = delete;
  ~RecordMemory();

  std::byte* data() const { return data_; }

 private:
  RecordMemory(UniqueFd fd, std::byte* data) : fd_(std::move(fd)), data_(data) {}
  static Result<RecordMemory> map(UniqueFd fd);

  UniqueFd fd_;  // kept open, for it shows where the memory is
  std::byte* data_;
};

/// Sealed memory for one rank's record, which a launcher hands to it. Close-on-exec.
Result<UniqueFd> make_sealed_memory();
/// What UNISONO_RECORDER_MEMORY says of it; "" where the system does not tell.
std::string announce(int fd);
/// Inverse of announce(); false where the text is none, and then nothing is set.
bool parse_announcement(const std::string& text, int* fd, std::uint64_t* inode);

}  // namespace unisono::recorder
