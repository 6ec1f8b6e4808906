// The questions of the GPU probe, each run in a process of its own that may start a second one
// before either has touched the driver. Answers are JSON lines on standard output.
//
// Thread rule: one thread per process.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/driver/cuda_api.h"

namespace unisono::gpu_probe {

/// {"question":...,"what":...,"value":...}
void answer(std::string_view what, double value);
void answer(std::string_view what, std::string_view text);
/// Of all answers from now on.
void set_question(std::string_view question);

/// Of UNISONO_CUDA_LIBRARY, or the usual name.
std::string driver_file();

/// The driver with device 0's context current and one stream. Throws std::runtime_error.
class Gpu {
 public:
  Gpu();
  ~Gpu();
  Gpu(const Gpu&) = delete;

  const cuda::CudaApi* operator->() const { return api_.get(); }
  const std::shared_ptr<const cuda::CudaApi>& api() const { return api_; }
  CUdevice device() const { return device_; }
  CUcontext context() const { return context_; }
  CUstream stream() const { return stream_; }
  void must(CUresult result, const char* what) const;
  /// Of a function that the library's table does not have; throws where the driver lacks it.
  template <typename Function>
  Function find(const char* name) const {
    return reinterpret_cast<Function>(find_function(name));
  }
  CUstream make_stream() const;
  CUevent make_event() const;
  void finish(CUstream stream) const { must((*this)->StreamSynchronize(stream), "waiting"); }

 private:
  void* find_function(const char* name) const;

  std::shared_ptr<const cuda::CudaApi> api_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  CUstream stream_ = nullptr;
};

/// Stream memory operations: of one word each, and the words that a batch is enqueued of. The
/// latter throws where the driver has none.
CUstreamBatchMemOpParams write_value(CUdeviceptr word, std::uint32_t value);
CUstreamBatchMemOpParams wait_value(CUdeviceptr word, std::uint32_t value);
void batch(const Gpu& gpu, CUstream stream, std::vector<CUstreamBatchMemOpParams> operations);

/// A page that processes share, made before they part.
class SharedPage {
 public:
  SharedPage();
  ~SharedPage();
  SharedPage(const SharedPage&) = delete;

  /// For the device, registered until close().
  CUdeviceptr open(const Gpu& gpu) const;
  void close(const Gpu& gpu) const;
  void* data() const { return page_; }

 private:
  void* page_;
};
/// Words a cache line apart.
inline CUdeviceptr word(CUdeviceptr page, int index) {
  return page + static_cast<CUdeviceptr>(64 * index);
}

/// Of a child, at once: it ends with its parent, whatever becomes of that.
void end_with(pid_t parent);
/// Two processes: `first` here, `second` in a child, each with its end of a socket. Throws when the
/// child fails.
void run_two(const std::function<void(int socket)>& first,
             const std::function<void(int socket)>& second);
/// Whole messages over that socket.
void send_bytes(int socket, const void* data, std::size_t bytes);
void receive_bytes(int socket, void* data, std::size_t bytes);

double now_us();

// The questions.
void ask_attributes();
void ask_memory_operations();
void ask_freed_handle();

}  // namespace unisono::gpu_probe
