// What all hosts of a fake fabric share: the objects, one lock over all of them, and the thread
// that carries out work requests. Payloads move without the lock; whoever takes memory or a queue
// pair away waits until the device has let go of it.
#pragma once

#include <condition_variable>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tests/verbs/fake_objects.h"
#include "tests/verbs/fake_order.h"

namespace unisono::verbs::fake {

struct CallFailure {
  FakeCall call;
  int after;  ///< calls that still go through
  int error_number;
  bool for_good;
};

struct Host {
  std::vector<std::unique_ptr<Device>> devices;
  bool held = false;
  bool unplugged = false;
  FakeCounters counters;
  std::vector<CallFailure> failures;
};

class Core {
 public:
  explicit Core(FakeFabricOptions options);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  /// The lock, for one call of a rank or a test; hides what it does from the thread sanitizer.
  class Section {
   public:
    explicit Section(Core& core) : hidden_(core.options_.exact_order), lock_(core.mutex_) {}
    std::unique_lock<std::mutex>& lock() { return lock_; }

   private:
    Hidden hidden_;
    std::unique_lock<std::mutex> lock_;
  };

  // All of the following under the lock.

  Host& host(int index) { return *hosts_[static_cast<std::size_t>(index)]; }
  Host& host(const Device& device) { return host(device.host); }
  Device& device(int host_index, int index) {
    return *host(host_index).devices[static_cast<std::size_t>(index)];
  }
  const FakeFabricOptions& options() const { return options_; }

  /// The errno that a test wants of this call, or 0.
  int failure(int host, FakeCall call);
  /// Keeps the words, returns the number.
  int refuse(int error_number, const Device& device, const std::string& words);
  const std::vector<std::string>& complaints() const { return complaints_; }

  void raise(Context& context, ibv_event_type type, void* element);
  /// Of a device, not of an object: to every context. Of its port if `of_port`.
  void raise(Device& device, ibv_event_type type, bool of_port);
  /// Events of something about to go are forgotten; waits until those taken are acknowledged.
  void settle_events(Section& section, Context& context, void* element);
  std::map<void*, int>& unacknowledged() { return unacknowledged_; }

  std::uint32_t new_key();
  std::uint32_t new_qp_number();
  void free_qp_number(std::uint32_t number) { free_qp_numbers_.push_back(number); }
  std::unordered_map<std::uint32_t, Region*>& by_lkey() { return by_lkey_; }
  std::unordered_map<std::uint32_t, Region*>& by_rkey() { return by_rkey_; }
  std::unordered_map<std::uint32_t, Qp*>& by_number() { return by_number_; }
  Device* find_gid(const ibv_gid& gid, std::uint32_t type);
  Device* find_lid(std::uint16_t lid);

  /// Has something to do from now on.
  void activate(Qp& qp);
  void wake() { wake_.notify_all(); }
  /// To the error state by itself or because its user says so.
  void break_qp(Qp& qp);
  /// To the reset state: what it has to do is forgotten without a word.
  void reset_qp(Qp& qp);
  void push(Cq& cq, const Entry& entry);
  void forget_completions(Cq& cq, std::uint32_t qp_number);
  /// Until `holds()`, which only the device thread or another call can make true.
  template <typename Condition>
  void wait(Section& section, Condition holds) {
    ++waiters_;
    changed_.wait(section.lock(), holds);
    --waiters_;
  }
  void changed() {
    if (waiters_ > 0) changed_.notify_all();
  }
  /// From its return until the section's end the device touches no payload.
  void quiesce(Section& section) {
    ++fences_;
    wait(section, [this] { return !moving_; });
    if (--fences_ == 0) wake();
  }
  bool is_idle();
  void order_behind_moves() { order_acquire(&moved_); }

 private:
  friend class Section;

  /// Local and remote side of one stretch of memory.
  struct Stretch {
    std::byte* target;
    const std::byte* source;
    std::size_t bytes;
    Region* local;  ///< null: inline
  };

  // The device thread, fake_execution.cc.
  void run();
  Qp* choose_qp(Time now, Time* next);
  bool is_runnable(const Qp& qp, Time now, Time* next) const;
  void step(Qp& qp, std::unique_lock<std::mutex>& lock);
  Work* choose_work(Qp& qp);
  bool may_begin(const Qp& qp) const;
  void flush(Qp& qp);
  void deactivate(Qp& qp);
  void begin(Qp& qp, Work& work);
  void advance(Qp& qp, Work& work, Qp& peer, std::unique_lock<std::mutex>& lock);
  void finish(Qp& qp, Work& work, Qp& peer);
  void deliver_receive(Qp& qp, const Work& work, Qp& peer);
  void retry(Qp& qp);
  void retry_receive(Qp& qp, Work& work);
  void fail(Qp& qp, Work& work, ibv_wc_status status);
  void break_peer(Qp& qp, ibv_wc_status status);
  void retire(Qp& qp);
  void complete(Qp& qp, const Work& work, ibv_wc_status status);

  // What may be touched, fake_access.cc.
  Qp* reach(Qp& qp);
  ibv_wc_status check_local(const Qp& qp, const Work& work);
  ibv_wc_status check_remote(const Qp& qp, const Work& work, const Qp& peer);
  Region* find_local(const Qp& qp, const ibv_sge& sge, bool written);
  Region* find_remote(const Work& work, const Qp& peer);
  void cut(Work& work);
  void tamper(Device& device, Work& work);
  bool lay_out(const Qp& qp, Work& work, Piece piece, Region* remote);
  void move(Qp& qp, Qp& peer, const Work& work, Region* remote, std::unique_lock<std::mutex>& lock);

  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

  const FakeFabricOptions options_;
  std::mutex mutex_;
  std::condition_variable wake_;     ///< for the device thread
  std::condition_variable changed_;  ///< for calls that wait
  int waiters_ = 0;
  int fences_ = 0;       ///< calls that wait for the end of a move
  bool moving_ = false;  ///< payloads, without the lock
  char moved_ = 0;       ///< its address orders what was moved
  bool stopping_ = false;
  std::mt19937_64 random_;
  std::uint64_t turn_ = 0;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<Qp*> active_;
  std::vector<Stretch> stretches_;  ///< of the step under way
  std::uint32_t last_key_ = 0;
  std::uint32_t last_qp_number_ = 0;
  std::vector<std::uint32_t> free_qp_numbers_;  ///< has room, for destroy_qp takes no memory
  std::unordered_map<std::uint32_t, Region*> by_lkey_;
  std::unordered_map<std::uint32_t, Region*> by_rkey_;
  std::unordered_map<std::uint32_t, Qp*> by_number_;
  std::map<void*, int> unacknowledged_;
  std::vector<std::string> complaints_;
  std::thread thread_;
};

/// One host's functions.
std::shared_ptr<VerbsApi> make_fake_device(std::shared_ptr<Core> core, int host);

}  // namespace unisono::verbs::fake
