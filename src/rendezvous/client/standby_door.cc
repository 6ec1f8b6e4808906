#include "rendezvous/client/standby_door.h"

#include <string>
#include <utility>

#include "base/log.h"
#include "base/network.h"
#include "base/same_user.h"
#include "rendezvous/failure/standby.h"
#include "rendezvous/messages/control_address.h"

namespace unisono::rendezvous {
namespace {

void listen_here(Member* self, std::vector<Listener>* listeners) {
  const std::string name = random_socket_name();
  auto listener = listen_unix(name);
  if (!listener) return log::debug("no standby: " + listener.error().message());
  listener->needs_proof = true;  // all ranks have the key by then
  add_line(kStandbyUnixLine, name, self);
  listeners->push_back(std::move(*listener));
}

void listen_to_hosts(const RendezvousPoint& point, Member* self, std::vector<Listener>* listeners) {
  auto listener = listen_tcp(host_to_bind(point), 0, point.interface_address);
  if (!listener) return log::debug("no standby: " + listener.error().message());
  const ControlAddress address = address_of(*listener);
  if (address.hosts.empty()) return;
  add_address(kStandbyTcpLine, address, self);
  listeners->push_back(std::move(*listener));
}

}  // namespace

std::vector<Listener> open_standby(const RendezvousPoint& point, int size, Member* self) {
  std::vector<Listener> listeners;
  const bool may_be =
      may_be_standby(self->rank, point.local_rank, point.local_size) && self->rank < size;
  if (!may_be || point.within_process) return listeners;
  if (check_own_user().ok()) listen_here(self, &listeners);
  if (may_span_hosts(point)) listen_to_hosts(point, self, &listeners);
  return listeners;
}

}  // namespace unisono::rendezvous
