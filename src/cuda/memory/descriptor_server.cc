#include "cuda/memory/descriptor_server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "base/errno_text.h"
#include "base/same_user.h"
#include "base/signals_blocked.h"
#include "transports/shm/descriptor_message.h"

namespace unisono::cuda {
namespace {

/// How long a visitor may take to say what it wants, and to take it.
constexpr auto kPatience = std::chrono::seconds(2);
/// Further ones wait in the socket's queue.
constexpr std::size_t kVisitorsMax = 64;

shm::Message refusal_of(const Status& cause) {
  shm::Message message;
  message.magic = shm::kDescriptorMessageMagic;
  message.kind = shm::MessageKind::kRefused;
  std::snprintf(message.text, sizeof message.text, "%s", cause.message().c_str());
  return message;
}

}  // namespace

Result<std::shared_ptr<DescriptorServer>> DescriptorServer::of_process() {
  static std::mutex mutex;
  static std::weak_ptr<DescriptorServer> running;
  const std::lock_guard lock(mutex);
  if (auto server = running.lock()) return server;
  std::shared_ptr<DescriptorServer> server(new DescriptorServer);
  UNISONO_TRY(server->start());
  running = server;
  return server;
}

Status DescriptorServer::start() {
  UNISONO_ASSIGN(listener_, shm::LocalListener::open());
  stop_.reset(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_) return {ErrorCode::kOutOfResources, "eventfd: " + errno_text(errno)};
  try {
    const SignalsBlocked blocked;
    thread_ = std::thread([this] {
      ::pthread_setname_np(::pthread_self(), "unisono-windows");
      serve();
    });
  } catch (const std::system_error& error) {
    return {ErrorCode::kOutOfResources,
            std::string("cannot start the thread that hands out windows: ") + error.what() +
                "; raise the limit of processes (ulimit -u)"};
  }
  return {};
}

DescriptorServer::~DescriptorServer() {
  if (!thread_.joinable()) return;
  // Cannot fail: the counter is far from full.
  ::eventfd_write(stop_.get(), 1);
  thread_.join();
}

std::uint64_t DescriptorServer::offer(Exporter exporter, Existence exists) {
  // The process counts, not one server: a number must stay unused when the server starts again.
  static std::atomic<std::uint64_t> last{0};
  const std::lock_guard lock(mutex_);
  const std::uint64_t id = last.fetch_add(1, std::memory_order_relaxed) + 1;
  offers_[id] = {std::move(exporter), std::move(exists)};
  return id;
}

void DescriptorServer::withdraw(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  offers_.erase(id);
}

Result<UniqueFd> DescriptorServer::export_of(std::uint64_t id) {
  // Held while exporting, so that withdraw() waits for it.
  const std::lock_guard lock(mutex_);
  const auto offer = offers_.find(id);
  if (offer == offers_.end()) {
    return Status(ErrorCode::kInvalidArgument,
                  "window " + std::to_string(id) + " does not exist (any more)");
  }
  return offer->second.exporter();
}

bool DescriptorServer::is_gone(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto offer = offers_.find(id);
  return offer == offers_.end() || (offer->second.exists && !offer->second.exists());
}

void DescriptorServer::serve() {
  std::vector<pollfd> entries;
  for (;;) {
    const TimePoint now = Clock::now();
    std::erase_if(visitors_, [&](const Visitor& v) { return !v.connection || v.patience <= now; });
    const bool has_room = visitors_.size() < kVisitorsMax;
    entries.assign({{stop_.get(), POLLIN, 0}, {has_room ? listener_->fd() : -1, POLLIN, 0}});
    for (const Visitor& v : visitors_) entries.push_back({v.connection.get(), POLLIN, 0});
    // Visitors leave at the latest after their patience; 100 ms late does no harm.
    const int wait_ms = visitors_.empty() ? -1 : 100;
    if (::poll(entries.data(), entries.size(), wait_ms) < 0) continue;
    if (entries[0].revents != 0) return;
    for (std::size_t i = 0; i < visitors_.size(); ++i) {
      if (entries[i + 2].revents == 0) continue;
      answer(visitors_[i].connection.get(), visitors_[i].patience);
      visitors_[i].connection.reset();
    }
    if (entries[1].revents != 0) admit();
  }
}

void DescriptorServer::admit() {
  UniqueFd connection(::accept4(listener_->fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!connection) {
    // Without a free descriptor the queue stays readable: wait for one instead of spinning.
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) ::poll(nullptr, 0, 10);
    return;
  }
  if (!check_same_user(connection.get())) return;
  visitors_.push_back({std::move(connection), Clock::now() + kPatience});
}

void DescriptorServer::answer(int connection, TimePoint patience) {
  // The message is there already, and the first answer always has room.
  std::vector<UniqueFd> unwanted;
  const auto request = shm::receive_message(connection, &unwanted, Clock::now());
  if (!request || !unwanted.empty()) return;
  if (request->kind == shm::MessageKind::kHello) {
    send_descriptor(connection, request->job_hash, patience);
  } else if (request->kind == shm::MessageKind::kWhichAreGone) {
    send_gone(connection, *request, patience);
  }
}

void DescriptorServer::send_gone(int connection, const shm::Message& question, TimePoint patience) {
  if (question.index < 0 || question.index > static_cast<std::int32_t>(kAskedMax)) return;
  shm::Message message;
  message.magic = shm::kDescriptorMessageMagic;
  message.kind = shm::MessageKind::kWhichAreGone;
  for (std::int32_t i = 0; i < question.index; ++i) {
    std::uint64_t id = 0;
    std::memcpy(&id, question.text + static_cast<std::size_t>(i) * sizeof id, sizeof id);
    if (is_gone(id)) message.job_hash |= std::uint64_t{1} << i;
  }
  static_cast<void>(shm::send_message(connection, message, {}, patience));
}

void DescriptorServer::send_descriptor(int connection, std::uint64_t id, TimePoint patience) {
  const Result<UniqueFd> descriptor = export_of(id);
  // A visitor that does not take its answer has itself to blame.
  if (!descriptor) {
    static_cast<void>(shm::send_message(connection, refusal_of(descriptor.error()), {}, patience));
    return;
  }
  shm::Message message;
  message.magic = shm::kDescriptorMessageMagic;
  message.kind = shm::MessageKind::kDescriptors;
  message.job_hash = id;
  const int fd = descriptor->get();
  static_cast<void>(shm::send_message(connection, message, std::span(&fd, 1), patience));
}

}  // namespace unisono::cuda
