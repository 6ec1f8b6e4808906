// One of a rank's two output streams: the pipe it writes to, cut into marked lines for the queue.
// One thread.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

#include "base/unique_fd.h"
#include "tools/run/output_prefix.h"
#include "tools/run/output_queue.h"

namespace unisono::run {

class RankStream {
 public:
  /// `target` is the launcher's own descriptor, 1 or 2, that the lines go to; `prompts`: also what
  /// is no whole line yet, where nothing follows it at once.
  RankStream(UniqueFd pipe, std::string prefix, int target, bool prompts)
      : pipe_(std::move(pipe)), cutter_(std::move(prefix)), target_(target), prompts_(prompts) {}

  bool is_open() const { return static_cast<bool>(pipe_); }
  int fd() const { return pipe_.get(); }

  /// Call when fd() is readable or hung up. Closes at the end of the stream.
  void read_some(OutputQueue& queue);
  /// Takes what is in the pipe now.
  void read_available(OutputQueue& queue);
  /// The same, and closes it: the rank's group is gone, and whoever else holds the other end has
  /// left the job.
  void drain(OutputQueue& queue);

 private:
  /// Bytes read, 0 when there are none now or the stream has ended.
  std::size_t read_once(OutputQueue& queue);
  void close(OutputQueue& queue);

  UniqueFd pipe_;
  LineCutter cutter_;
  int target_;
  bool prompts_;
};

}  // namespace unisono::run
