// The ready communication hooks: the average in float32 and in two 16-bit formats.
#include <utility>

#include "train/ddp/communication_buffer.h"
#include "unisono/float_types.h"
#include "unisono/train/distributed_data_parallel.h"

namespace unisono::train {
namespace {

class SumInPlace : public CommunicationHook::Reduction {
 public:
  explicit SumInPlace(Request request) : request_(std::move(request)) {}
  bool test() override { return request_.test(); }
  void finish() override { request_.wait(); }

 private:
  Request request_;
};

class AverageHook : public CommunicationHook {
 public:
  std::unique_ptr<Reduction> start(std::span<float> bucket, float factor,
                                   Communicator& communicator,
                                   const CallOptions& options) override {
    if (factor != 1.0F) {
      Backend& backend = current_backend();
      backend.scale(bucket.data(), bucket.size(), factor, bucket.data());
      backend.side_follows_main();
    }
    return std::make_unique<SumInPlace>(communicator.all_reduce_async(bucket, ops::sum, options));
  }
};

template <typename T>
class CompressedSum : public CommunicationHook::Reduction {
 public:
  CompressedSum(std::span<float> bucket, float factor, Communicator& communicator,
                const CallOptions& options)
      : bucket_(bucket), compressed_(communicator, bucket.size()) {
    Backend& backend = current_backend();
    backend.narrow(bucket.data(), bucket.size(), factor, data_type_of<T>, compressed_.data());
    backend.side_follows_main();
    request_ = communicator.all_reduce_async(compressed_.data(), compressed_.data(), bucket.size(),
                                             data_type_of<T>, ops::sum, options);
  }
  bool test() override { return request_.test(); }
  void finish() override {
    request_.wait();
    Backend& backend = current_backend();
    backend.main_follows_side();
    backend.widen(compressed_.data(), data_type_of<T>, bucket_.size(), bucket_.data());
  }

 private:
  std::span<float> bucket_;
  CommunicationBuffer<T> compressed_;
  Request request_;  // after the buffer: it waits while the buffer is lent
};

template <typename T>
class CompressionHook : public CommunicationHook {
 public:
  std::unique_ptr<Reduction> start(std::span<float> bucket, float factor,
                                   Communicator& communicator,
                                   const CallOptions& options) override {
    return std::make_unique<CompressedSum<T>>(bucket, factor, communicator, options);
  }
};

}  // namespace

std::shared_ptr<CommunicationHook> make_average_hook() { return std::make_shared<AverageHook>(); }
std::shared_ptr<CommunicationHook> make_fp16_hook() {
  return std::make_shared<CompressionHook<Float16>>();
}
std::shared_ptr<CommunicationHook> make_bf16_hook() {
  return std::make_shared<CompressionHook<Bfloat16>>();
}

}  // namespace unisono::train
