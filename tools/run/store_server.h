// The launcher's key-value store, in which ranks that were started again and those that go on find
// each other (rendezvous/launcher_store.h). It lives at an abstract UNIX socket of a random name,
// for processes of the launcher's user alone. One thread, the supervisor's: nothing here blocks.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"
#include "rendezvous/sockets.h"
#include "rendezvous/store_request.h"

namespace unisono::run {

class StoreServer {
 public:
  /// Connections at a time; further ones wait to be accepted.
  static constexpr std::size_t kClientsMax = 4096;
  /// Keys and values together; a set beyond is refused.
  static constexpr std::size_t kBytesMax = std::size_t{64} << 20;

  /// `clients_max`: as many as there are descriptors for.
  static Result<StoreServer> start(std::size_t clients_max = kClientsMax);

  /// Of the socket: what ranks find in UNISONO_LAUNCHER_STORE.
  const std::string& name() const { return name_; }
  /// Readable when serve() has something to do.
  int fd() const { return events_.get(); }
  void serve();
  bool holds(std::string_view key) const { return values_.contains(key); }

 private:
  struct Client {
    UniqueFd fd;
    std::string bytes;    // of the question, so far
    std::string awaited;  // the key of a get that nobody has set yet
  };

  StoreServer(std::string name, rendezvous::Listener listener, UniqueFd events,
              std::size_t clients_max);
  void accept_clients();
  void listen(bool on);
  void on_client(int fd);
  bool keep(Client& client);
  bool answer(Client& client, const rendezvous::StoreRequest& request);
  std::string set(const rendezvous::StoreRequest& request);
  void answer_waiting(std::string_view key, std::string_view value);

  std::string name_;
  rendezvous::Listener listener_;
  UniqueFd events_;
  std::map<int, Client> clients_;
  std::map<std::string, std::string, std::less<>> values_;
  std::size_t bytes_ = 0;
  std::size_t clients_max_;
  bool listens_ = true;
};

}  // namespace unisono::run
