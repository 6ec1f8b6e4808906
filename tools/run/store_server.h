// The launcher's key-value store, in which ranks that were started again and those that go on find
// each other (rendezvous/store/launcher_store.h). It lives at an abstract UNIX socket of a random
// name, for processes of the launcher's user alone. Of several nodes that of node 0 answers for
// all: the others pass on what their ranks ask. One thread, the supervisor's: nothing here blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "base/unique_fd.h"
#include "rendezvous/sockets/sockets.h"
#include "rendezvous/store/store_request.h"
#include "tools/run/restart_policy.h"
#include "tools/run/store_values.h"

namespace unisono::run {

class StoreServer {
 public:
  /// Connections at a time; further ones wait to be accepted.
  static constexpr std::size_t kClientsMax = 4096;
  /// Of a question of another node.
  using Answer = std::function<void(const Asker& asker, const std::string& bytes)>;
  /// A question of a client, as bytes; empty: the client has hung up.
  using PassOn = std::function<void(std::uint64_t question, const std::string& bytes)>;

  /// `clients_max`: as many as there are descriptors for.
  static Result<StoreServer> start(std::size_t clients_max = kClientsMax);

  /// Of the socket: what ranks find in UNISONO_LAUNCHER_STORE.
  const std::string& name() const { return name_; }
  /// Readable when serve() has something to do.
  int fd() const { return events_.get(); }
  void serve();
  /// Where questions are passed on, whether this node's ranks have set it.
  bool holds(std::string_view key) const { return values_.holds(key); }

  /// The store of node 0.
  void answer_others_by(Answer answer) { answer_ = std::move(answer); }
  /// kProtocol where it cannot be taken.
  Status ask(const Asker& asker, std::string_view bytes);
  void forget(const Asker& asker) { values_.forget(asker); }
  void forget_node(int node) { values_.forget_node(node); }

  /// The store of another node: clients are answered by answer(). Null: here again, once they have
  /// asked anew.
  void pass_on_by(PassOn pass_on);
  void answer(std::uint64_t question, const std::string& bytes);

 private:
  struct Client {
    UniqueFd fd;
    std::string bytes;           // of the question, so far
    std::uint64_t question = 0;  // its number once it is whole
  };

  StoreServer(std::string name, rendezvous::Listener listener, UniqueFd events,
              std::size_t clients_max);
  void accept_clients();
  void listen(bool on);
  void listen_again();
  void on_client(int fd);
  Result<std::optional<rendezvous::StoreRequest>> hear(Client& client);
  void give(const StoreValues::Answers& answers);
  void drop(int fd);

  std::string name_;
  rendezvous::Listener listener_;
  UniqueFd events_;
  std::map<int, Client> clients_;
  std::map<std::uint64_t, int> asked_;  // by the number of its question, the descriptor of a client
  std::uint64_t questions_ = 0;         // so far
  StoreValues values_;
  Answer answer_;
  PassOn pass_on_;
  std::size_t clients_max_;
  bool listens_ = true;
};

/// What ranks have told it of themselves. Null: there is none, and nobody rejoins.
RejoiningFacts facts_in(const StoreServer* store);

}  // namespace unisono::run
