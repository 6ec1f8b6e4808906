// The ready communication hooks: the average in float32 and in two 16-bit formats.
#include <algorithm>
#include <utility>

#include "train/model/device_memory.h"
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
      for (float& value : bucket) value *= factor;
    }
    return std::make_unique<SumInPlace>(communicator.all_reduce_async(bucket, sum, options));
  }
};

template <typename T>
class CompressedSum : public CommunicationHook::Reduction {
 public:
  CompressedSum(std::span<float> bucket, float factor, Communicator& communicator,
                const CallOptions& options)
      : bucket_(bucket),
        charge_(bucket.size() * sizeof(T)),
        compressed_(communicator, std::max<std::size_t>(bucket.size(), 1)) {
    std::transform(bucket.begin(), bucket.end(), compressed_.begin(),
                   [factor](float value) { return from_float<T>(value * factor); });
    request_ = communicator.all_reduce_async(compressed_.data(), compressed_.data(), bucket.size(),
                                             data_type_of<T>, sum, options);
  }
  bool test() override { return request_.test(); }
  void finish() override {
    request_.wait();
    std::transform(compressed_.data(), compressed_.data() + bucket_.size(), bucket_.begin(),
                   [](T value) { return to_float(value); });
  }

 private:
  std::span<float> bucket_;
  MemoryCharge charge_;
  SharedBuffer<T> compressed_;
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
