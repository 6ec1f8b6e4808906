#include "rendezvous/client/control_thread.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "base/errno_text.h"
#include "base/log.h"
#include "base/per_process.h"
#include "base/signals_blocked.h"
#include "base/unique_fd.h"
#include "rendezvous/arbiter/arbiter_server.h"
#include "rendezvous/sockets/run_or_end.h"
#include "rendezvous/sockets/sockets.h"

namespace unisono::rendezvous {
namespace {

// One thread from its first client to its last.
struct Service {
  UniqueFd wakes;
  bool ended = false;
  std::thread thread;

  void wake() const {
    const std::uint64_t one = 1;
    // An event counter takes one more always; there is nothing to do about a failure.
    static_cast<void>(!::write(wakes.get(), &one, sizeof one));
  }
};

void end_control_at_exit();

// The clients of this process.
struct Served {
  std::mutex mutex;  // held while one of them is served
  std::vector<ControlClient*> clients;
  std::unique_ptr<Service> service;  // null without clients

  Served() {
    prepare_arbiters();  // first, so that they end after the thread, which may start one
    std::atexit(end_control_at_exit);
  }
  bool has(const ControlClient* client) const {
    return std::find(clients.begin(), clients.end(), client) != clients.end();
  }
};

constinit PerProcess<Served> of_process;

Served& served() { return of_process.get(); }

struct Turn {
  ControlClient* client;
  std::size_t first, count;  // its descriptors
};

// Under the mutex.
TimePoint ask_all(std::vector<pollfd>* awaited, std::vector<Turn>* turns) {
  TimePoint due = kNever;
  for (ControlClient* const client : served().clients) {
    const std::size_t first = awaited->size();
    client->list_awaited(awaited);
    turns->push_back({client, first, awaited->size() - first});
    due = std::min(due, client->next_due());
  }
  return due;
}

void serve_turn(const Turn& turn, std::span<const pollfd> all, TimePoint now) {
  const std::lock_guard lock(served().mutex);
  if (!served().has(turn.client)) return;  // it has gone meanwhile
  const std::span<const pollfd> happened = all.subspan(turn.first, turn.count);
  const bool ready = std::any_of(happened.begin(), happened.end(),
                                 [](const pollfd& each) { return each.revents != 0; });
  if (ready || turn.client->next_due() <= now) turn.client->serve(happened, now);
}

void serve_until_ended(const Service& service) {
  ::pthread_setname_np(::pthread_self(), "unisono-control");
  std::vector<pollfd> awaited;
  std::vector<Turn> turns;
  for (;;) {
    awaited.assign(1, {service.wakes.get(), POLLIN, 0});
    turns.clear();
    TimePoint due;
    {
      const std::lock_guard lock(served().mutex);
      if (service.ended) return;
      due = ask_all(&awaited, &turns);
    }
    // An error would be one of memory: then all is looked at, and asked again.
    static_cast<void>(::poll(awaited.data(), awaited.size(), timeout_ms(due, Clock::now())));
    std::uint64_t wakes = 0;
    if (awaited[0].revents != 0) static_cast<void>(!::read(awaited[0].fd, &wakes, sizeof wakes));
    const TimePoint now = Clock::now();
    for (const Turn& turn : turns) serve_turn(turn, awaited, now);
  }
}

// Under the mutex. What is returned is to be joined without it.
std::unique_ptr<Service> end_service() {
  if (served().service == nullptr) return nullptr;
  served().service->ended = true;
  served().service->wake();
  return std::move(served().service);
}

void join(const std::unique_ptr<Service>& service) {
  if (service != nullptr) service->thread.join();
}

// A process may end with clients that nobody has removed.
void end_control_at_exit() {
  if (of_process.find() == nullptr) return;
  std::unique_ptr<Service> service;
  {
    const std::lock_guard lock(served().mutex);
    service = end_service();
  }
  join(service);
}

Status start_service() {
  auto service = std::make_unique<Service>();
  service->wakes = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!service->wakes) {
    return {ErrorCode::kOutOfResources,
            "the control connection cannot be served (eventfd): " + errno_text(errno)};
  }
  try {
    const SignalsBlocked blocked;
    service->thread = std::thread([running = service.get()] {
      run_or_end("control connection", [&] { serve_until_ended(*running); });
    });
  } catch (const std::system_error& error) {
    return {ErrorCode::kOutOfResources,
            fmt::format("the control connection cannot be served: no thread for it ({}); raise "
                        "the limit of threads",
                        error.what())};
  }
  served().service = std::move(service);
  return {};
}

}  // namespace

Status add_to_control_thread(ControlClient* client) {
  const std::lock_guard lock(served().mutex);
  if (served().service == nullptr) UNISONO_TRY(start_service());
  served().clients.push_back(client);
  served().service->wake();
  return {};
}

void remove_from_control_thread(const ControlClient* client) {
  std::unique_ptr<Service> last;
  {
    const std::lock_guard lock(served().mutex);
    if (std::erase(served().clients, client) == 0) return;
    if (served().clients.empty()) {
      last = end_service();
    } else {
      // While it waits for a descriptor, that is not closed, whatever the client does to it.
      served().service->wake();
    }
  }
  join(last);
}

void wake_control_thread() {
  const std::lock_guard lock(served().mutex);
  if (served().service != nullptr) served().service->wake();
}

}  // namespace unisono::rendezvous
