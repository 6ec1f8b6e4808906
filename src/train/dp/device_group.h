// The devices of one process: a thread and a memory account each, ranks of one communicator. The
// threads are started once and run the jobs they are given, one phase after the other.
//
// Owned by a DataParallel. Threads: one thread at a time calls the functions that run jobs; what
// is written before such a call is seen by the jobs, and what they write is seen after it.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "unisono/communicator.h"
#include "unisono/helper_threads.h"
#include "unisono/traffic.h"
#include "unisono/train/tensor.h"

namespace unisono::train {

struct Device {
  /// `gpu` -1: on the host.
  Device(std::size_t position, int name, int gpu)
      : index(position), id(name), memory(gpu < 0 ? Residence::kHost : Residence::kCuda, gpu) {}

  std::size_t index;
  int id;
  DeviceMemory memory;
  Communicator* world = nullptr;                ///< null: the only device
  std::map<std::size_t, Communicator> leading;  ///< of the first n devices, by n
  TrafficReport preparation;                    ///< what making `leading` took

  /// The communicator of the first `devices`; null for one device, which has nobody to talk to.
  Communicator* among(std::size_t devices);
  /// Of all its communicators together, without their preparation.
  TrafficReport traffic() const;
};

class DeviceGroup {
 public:
  using Job = std::function<void(Device&)>;
  using Chosen = std::function<bool(const Device&)>;

  /// One device has no thread: its jobs run in the caller's. Throws unisono::Error.
  /// `gpus` as in DataParallelOptions.
  DeviceGroup(const std::vector<int>& ids, bool threads_per_apply,
              const std::vector<int>& gpus = {});
  ~DeviceGroup();
  DeviceGroup(const DeviceGroup&) = delete;
  DeviceGroup& operator=(const DeviceGroup&) = delete;

  std::size_t size() const { return devices_.size(); }
  Device& operator[](std::size_t index) { return *devices_[index]; }

  /// Runs `job` on the chosen devices and waits for all; the earliest exception is rethrown. Jobs
  /// do not communicate, so that one which fails leaves nobody waiting.
  void run(const Chosen& chosen, const Job& job);
  void run_all(const Job& job);
  void run_on(std::size_t index, const Job& job);
  /// The same for the work of replicas: a failure becomes a ReplicaError, the first replica's where
  /// several fail.
  void run_replicas(const Chosen& chosen, const Job& job);
  /// The same, with threads_per_apply in a thread started for it.
  void apply(const Chosen& chosen, const Job& job);
  /// The collectives of the first `devices`, which use among(devices). When one of them fails the
  /// others' calls end, and the group is of no more use.
  void exchange(std::size_t devices, const Job& job);

  /// By apply() so far.
  std::size_t threads_started() const { return threads_started_; }

 private:
  /// What a device's thread and the caller tell each other.
  struct Mailbox {
    std::condition_variable posted;
    const Job* job = nullptr;
    std::exception_ptr failure;
    std::size_t failed_as = 0;  ///< 0 for the first to fail
  };

  void serve(Communicator& world);
  void start();
  void stop();
  /// Leaves the outcomes in the mailboxes.
  void run_jobs(const Chosen& chosen, const Job& job);
  void run_job(Device& device, const Job& job);
  /// Of the exception at hand; the first of a job counts.
  void note_failure(const Device& device);
  void run_in_new_thread(Device& device, const Job& job);
  void prepare(std::size_t devices);
  void rethrow_earliest() const;

  const std::vector<int> gpus_;
  const bool threads_per_apply_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<Mailbox>> mailboxes_;
  std::thread host_;                     ///< runs spawn()
  std::optional<HelperThreads> caller_;  ///< who hands out the jobs, beside the devices' threads

  std::mutex mutex_;  ///< of all below and of the mailboxes
  std::condition_variable changed_;
  std::size_t serving_ = 0, running_ = 0, failures_ = 0, threads_started_ = 0;
  bool stopping_ = false, ended_ = false;
  std::exception_ptr end_;  ///< why the devices ended
};

}  // namespace unisono::train
