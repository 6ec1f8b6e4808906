// Batches in order, made ahead by threads.
#include "unisono/train/loader.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "base/signals_blocked.h"
#include "unisono/helper_threads.h"

namespace unisono::train {

namespace {

const LoaderOptions& checked(const LoaderOptions& options) {
  if (options.batch_samples == 0) {
    throw std::invalid_argument("a batch of no samples cannot be made; choose 1 or more");
  }
  if (options.workers < 0 || options.ahead == 0) {
    throw std::invalid_argument(std::to_string(options.workers) + " workers with " +
                                std::to_string(options.ahead) +
                                " batches ahead each cannot prepare anything; choose 0 or more "
                                "workers and at least 1 batch");
  }
  return options;
}

Batch make_in(DeviceMemory* memory, const Dataset& data, std::span<const std::size_t> indices) {
  std::optional<DeviceMemory::Scope> scope;
  if (memory != nullptr) scope.emplace(*memory);
  return make_batch(data, indices);
}

}  // namespace

// A ring of batches: batch b lies in slot b % capacity from when a worker begins it until next()
// takes it, so workers are never further ahead than the ring is long.
class Loader::Workers {
 public:
  Workers(const Dataset& data, const std::vector<std::vector<std::size_t>>& plan, std::size_t first,
          const LoaderOptions& options)
      : data_(data),
        plan_(plan),
        memory_(options.memory),
        slots_(static_cast<std::size_t>(options.workers) * options.ahead),
        started_(first),
        taken_(first),
        helpers_(options.workers) {
    try {
      const SignalsBlocked blocked;
      for (int i = 0; i < options.workers; ++i) threads_.emplace_back([this] { work(); });
    } catch (...) {
      stop();
      throw;
    }
  }
  ~Workers() { stop(); }

  Batch take();

 private:
  struct Slot {
    bool ready = false;
    Batch batch;
    std::exception_ptr failure;
  };

  void work();
  // Waits for the batches that are in the making.
  void stop();

  const Dataset& data_;
  const std::vector<std::vector<std::size_t>>& plan_;
  DeviceMemory* const memory_;
  std::mutex mutex_;
  std::condition_variable room_, ready_;
  std::vector<Slot> slots_;
  std::size_t started_, taken_;
  bool stop_ = false;
  const HelperThreads helpers_;
  std::vector<std::jthread> threads_;
};

void Loader::Workers::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  room_.notify_all();
  threads_.clear();
}

void Loader::Workers::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    room_.wait(lock, [&] {
      return stop_ || started_ == plan_.size() || started_ < taken_ + slots_.size();
    });
    if (stop_ || started_ == plan_.size()) return;
    const std::size_t mine = started_++;
    lock.unlock();
    Slot made;
    try {
      made.batch = make_in(memory_, data_, plan_[mine]);
    } catch (...) {
      made.failure = std::current_exception();
    }
    made.ready = true;
    lock.lock();
    slots_[mine % slots_.size()] = std::move(made);
    ready_.notify_one();
  }
}

Batch Loader::Workers::take() {
  Slot slot;
  {
    std::unique_lock lock(mutex_);
    Slot& next = slots_[taken_ % slots_.size()];
    ready_.wait(lock, [&] { return next.ready; });
    slot = std::exchange(next, {});
    ++taken_;
  }
  room_.notify_one();
  if (slot.failure) std::rethrow_exception(slot.failure);
  return std::move(slot.batch);
}

Loader::Loader(Dataset& data, LoaderOptions options) : data_(data), options_(checked(options)) {}

Loader::Loader(Dataset& data, Sampler& sampler, LoaderOptions options)
    : data_(data), sampler_(&sampler), options_(checked(options)) {
  if (options.shuffle) {
    throw std::invalid_argument(
        "a sampler decides the order of samples: leave the loader's own shuffling out, or shuffle "
        "in the sampler");
  }
}

Loader::~Loader() = default;

std::size_t Loader::batches() const {
  const std::size_t samples = sampler_ != nullptr ? sampler_->size() : data_.size();
  return samples / options_.batch_samples +
         (!options_.drop_last && samples % options_.batch_samples != 0 ? 1 : 0);
}

std::vector<std::size_t> Loader::epoch_indices(std::uint64_t epoch) {
  if (sampler_ != nullptr) {
    sampler_->set_epoch(epoch);
    return sampler_->indices();
  }
  if (options_.shuffle) return random_permutation(data_.size(), options_.seed + epoch);
  std::vector<std::size_t> indices(data_.size());
  std::iota(indices.begin(), indices.end(), std::size_t{0});
  return indices;
}

void Loader::begin(std::uint64_t epoch, std::size_t first_batch) {
  workers_.reset();
  // Until all is ready there is nothing to take, should something here throw.
  plan_.clear();
  next_ = 0;
  const std::vector<std::size_t> indices = epoch_indices(epoch);
  data_.prepare(indices);
  plan_ = cut_batches(indices, options_.batch_samples, options_.drop_last);
  next_ = first_batch;
  if (options_.workers > 0 && next_ < plan_.size()) {
    workers_ = std::make_unique<Workers>(data_, plan_, next_, options_);
  }
}

std::optional<Batch> Loader::next() {
  if (next_ >= plan_.size()) {
    workers_.reset();
    return std::nullopt;
  }
  const std::size_t mine = next_++;
  return workers_ ? workers_->take() : make_in(options_.memory, data_, plan_[mine]);
}

}  // namespace unisono::train
