// Device threads as ranks of spawn(), their mailboxes, and who reports which failure.
#include "train/dp/device_group.h"

#include <utility>

#include "base/signals_blocked.h"
#include "train/failure.h"
#include "unisono/train/data_parallel.h"

namespace unisono::train {
Communicator* Device::among(std::size_t devices) {
  if (devices == 1 || world == nullptr) return nullptr;
  if (devices == static_cast<std::size_t>(world->size())) return world;
  return &leading.at(devices);
}

TrafficReport Device::traffic() const {
  if (world == nullptr) return {};
  TrafficReport sum = world->traffic();
  sum -= preparation;
  // The leading devices are numbered alike in all.
  for (const auto& entry : leading) sum += entry.second.traffic();
  return sum;
}

DeviceGroup::DeviceGroup(const std::vector<int>& ids, bool threads_per_apply,
                         const std::vector<int>& gpus)
    : gpus_(gpus), threads_per_apply_(threads_per_apply) {
  for (const int id : ids) {
    const std::size_t index = devices_.size();
    devices_.push_back(
        std::make_unique<Device>(index, id, gpus.empty() ? -1 : gpus[index % gpus.size()]));
    mailboxes_.push_back(std::make_unique<Mailbox>());
  }
  if (size() > 1) start();
}

DeviceGroup::~DeviceGroup() { stop(); }

void DeviceGroup::start() {
  caller_.emplace(1);
  // The ranks' threads inherit it: the program has its own.
  std::optional<SignalsBlocked> blocked(std::in_place);
  host_ = std::thread([this] {
    std::exception_ptr failure;
    try {
      spawn(static_cast<int>(size()), [this](Communicator& world) { serve(world); },
            {.devices = gpus_});
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    end_ = failure;
    ended_ = true;
    changed_.notify_all();
  });
  blocked.reset();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return serving_ == size() || ended_; });
  if (!ended_) return;
  const std::exception_ptr failure = end_;
  lock.unlock();
  host_.join();
  std::rethrow_exception(failure);
}

void DeviceGroup::stop() {
  if (!host_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& mailbox : mailboxes_) mailbox->posted.notify_one();
  }
  host_.join();
}

void DeviceGroup::serve(Communicator& world) {
  Device& device = *devices_[static_cast<std::size_t>(world.rank())];
  Mailbox& mailbox = *mailboxes_[device.index];
  device.world = &world;
  // A device that could not join fails here on all others, which would wait for jobs otherwise.
  world.barrier();
  std::unique_lock lock(mutex_);
  ++serving_;
  changed_.notify_all();
  for (;;) {
    mailbox.posted.wait(lock, [&] { return mailbox.job != nullptr || stopping_; });
    if (mailbox.job == nullptr) break;
    const Job& job = *mailbox.job;
    lock.unlock();
    run_job(device, job);
    lock.lock();
    mailbox.job = nullptr;
    if (--running_ == 0) changed_.notify_all();
  }
  lock.unlock();
  device.leading.clear();
  device.world = nullptr;
}

void DeviceGroup::run_job(Device& device, const Job& job) {
  const DeviceMemory::Scope scope(device.memory);
  try {
    job(device);
  } catch (...) {
    note_failure(device);
  }
}

void DeviceGroup::note_failure(const Device& device) {
  const std::lock_guard lock(mutex_);
  Mailbox& mailbox = *mailboxes_[device.index];
  if (mailbox.failure != nullptr) return;
  mailbox.failure = std::current_exception();
  mailbox.failed_as = failures_++;
}

void DeviceGroup::run_jobs(const Chosen& chosen, const Job& job) {
  std::unique_lock lock(mutex_);
  failures_ = 0;
  for (const auto& mailbox : mailboxes_) mailbox->failure = nullptr;
  if (size() == 1) {
    lock.unlock();
    if (chosen(*devices_[0])) run_job(*devices_[0], job);
    return;
  }
  for (const auto& device : devices_) {
    if (!chosen(*device)) continue;
    mailboxes_[device->index]->job = &job;
    mailboxes_[device->index]->posted.notify_one();
    ++running_;
  }
  changed_.wait(lock, [this] { return running_ == 0; });
}

void DeviceGroup::rethrow_earliest() const {
  const Mailbox* earliest = nullptr;
  for (const auto& mailbox : mailboxes_) {
    if (mailbox->failure == nullptr) continue;
    if (earliest == nullptr || mailbox->failed_as < earliest->failed_as) earliest = mailbox.get();
  }
  if (earliest != nullptr) std::rethrow_exception(earliest->failure);
}

void DeviceGroup::run(const Chosen& chosen, const Job& job) {
  run_jobs(chosen, job);
  rethrow_earliest();
}

void DeviceGroup::run_all(const Job& job) {
  run([](const Device&) { return true; }, job);
}

void DeviceGroup::run_on(std::size_t index, const Job& job) {
  run([index](const Device& device) { return device.index == index; }, job);
}

void DeviceGroup::run_in_new_thread(Device& device, const Job& job) {
  std::exception_ptr failure;
  std::thread thread([&] {
    const DeviceMemory::Scope scope(device.memory);
    try {
      job(device);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  {
    const std::lock_guard lock(mutex_);
    ++threads_started_;
  }
  thread.join();
  if (failure != nullptr) std::rethrow_exception(failure);
}

void DeviceGroup::run_replicas(const Chosen& chosen, const Job& job) {
  if (size() == 1) return run(chosen, job);
  run_jobs(chosen, job);
  for (const auto& device : devices_) {
    const std::exception_ptr& failure = mailboxes_[device->index]->failure;
    if (failure == nullptr) continue;
    const ReplicaError error(device->index, device->id, describe(failure));
    try {
      std::rethrow_exception(failure);
    } catch (...) {
      std::throw_with_nested(error);
    }
  }
}

void DeviceGroup::apply(const Chosen& chosen, const Job& job) {
  if (size() == 1 || !threads_per_apply_) return run_replicas(chosen, job);
  run_replicas(chosen, [&](Device& device) { run_in_new_thread(device, job); });
}

void DeviceGroup::prepare(std::size_t devices) {
  if (devices == 1 || devices == size() || devices_[0]->leading.count(devices) != 0) return;
  run_all([devices](Device& device) {
    const TrafficReport before = device.traffic();
    device.leading.emplace(devices, device.world->split(device.index < devices ? 0 : -1));
    device.preparation += device.traffic() - before;
  });
}

void DeviceGroup::exchange(std::size_t devices, const Job& job) {
  prepare(devices);
  run([devices](const Device& device) { return device.index < devices; },
      [&](Device& device) {
        try {
          job(device);
        } catch (...) {
          note_failure(device);  // before those that fail because of it
          const std::string reason = "device " + std::to_string(device.id) +
                                     " gave up: " + describe(std::current_exception());
          if (Communicator* part = device.among(devices)) part->abort(reason);
          if (device.world != nullptr) device.world->abort(reason);
          throw;
        }
      });
}

}  // namespace unisono::train
