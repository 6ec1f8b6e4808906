// See listener.h.
#include "transports/tcp/listener.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <openssl/rand.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <cstring>
#include <utility>
#include <vector>

#include "transports/tcp/local_addresses.h"

namespace unisono::tcp {
namespace {

using boost::system::error_code;

Status refused(const StreamOptions& options, const Target& target, const error_code& error) {
  if (options.family == StreamOptions::Family::kUnix) {
    return {ErrorCode::kSystem, fmt::format("rank {} cannot listen on {}: {}", options.rank,
                                            to_text(target), error.message())};
  }
  if (error == boost::asio::error::address_in_use) {
    return {ErrorCode::kRendezvous,
            fmt::format("rank {} cannot listen on {}: port {} is taken by another process; set "
                        "UNISONO_PORT to a free port, or to 0 for any",
                        options.rank, to_text(target), options.port)};
  }
  return {ErrorCode::kSystem,
          fmt::format("rank {} cannot listen on {}: {} (UNISONO_INTERFACE chooses the address, "
                      "UNISONO_PORT the port)",
                      options.rank, to_text(target), error.message())};
}

Result<Acceptor> listen_on(boost::asio::io_context& context, const StreamOptions& options,
                           const Target& target, bool both_families) {
  Acceptor acceptor(context);
  error_code error;
  acceptor.open(Protocol(target.address.ss_family, 0), error);
  if (!error && target.address.ss_family != AF_UNIX) {
    // So that a job may begin anew on the port of one that has just ended.
    acceptor.set_option(Acceptor::reuse_address(true), error);
  }
  if (!error && target.address.ss_family == AF_INET6) {
    acceptor.set_option(boost::asio::ip::v6_only(!both_families), error);
  }
  if (!error) {
    // Accepted sockets inherit the sizes; the window is agreed while connecting.
    prepare_socket(acceptor.native_handle(), options.send_buffer_bytes,
                   options.receive_buffer_bytes);
    acceptor.bind(Protocol::endpoint(&target.address, target.bytes), error);
  }
  if (!error) acceptor.listen(options.backlog, error);
  if (error) return refused(options, target, error);
  return acceptor;
}

std::uint16_t port_of(const Acceptor& acceptor) {
  error_code error;
  const Protocol::endpoint local = acceptor.local_endpoint(error);
  sockaddr_in6 address{};  // the port lies at the same place in IPv4
  std::memcpy(&address, local.data(), std::min(local.size(), sizeof address));
  return ntohs(address.sin6_port);
}

Result<Listener> listen_unix(boost::asio::io_context& context, const StreamOptions& options) {
  unsigned char random[16];
  if (RAND_bytes(random, sizeof random) != 1) {
    return Status(ErrorCode::kSystem, "the system's random generator gives nothing");
  }
  std::string name = "unisono-";
  for (const unsigned char byte : random) name += fmt::format("{:02x}", byte);
  UNISONO_ASSIGN(const Target target, unix_target(name));
  UNISONO_ASSIGN(Acceptor acceptor, listen_on(context, options, target, false));
  return Listener{std::move(acceptor), unix_address_text(name)};
}

// The numeric addresses of a host name, or of the address itself.
Result<std::vector<std::string>> resolve(boost::asio::io_context& context,
                                         const StreamOptions& options) {
  boost::asio::ip::tcp::resolver resolver(context);
  error_code error;
  const auto found = resolver.resolve(options.bind_address, "", error);
  std::vector<std::string> out;
  for (const auto& entry : found) out.push_back(entry.endpoint().address().to_string());
  if (error || out.empty()) {
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("rank {}: '{}' is no address of this host: {} (UNISONO_INTERFACE)",
                              options.rank, options.bind_address, error.message()));
  }
  return out;
}

Result<Listener> listen_everywhere(boost::asio::io_context& context, const StreamOptions& options) {
  UNISONO_ASSIGN(const Target any6, tcp_target("::", options.port));
  UNISONO_ASSIGN(const Target any4, tcp_target("0.0.0.0", options.port));
  auto acceptor = listen_on(context, options, any6, true);
  const bool with_ipv6 = acceptor.has_value();
  // A host without IPv6 listens on IPv4; a port that is taken is taken in both.
  if (!with_ipv6 && acceptor.error().code() == ErrorCode::kSystem) {
    acceptor = listen_on(context, options, any4, false);
  }
  if (!acceptor) return acceptor.error();
  const std::uint16_t port = port_of(*acceptor);
  return Listener{std::move(*acceptor), tcp_address_text(port, local_addresses(with_ipv6))};
}

}  // namespace

Result<Listener> listen(boost::asio::io_context& context, const StreamOptions& options) {
  if (options.family == StreamOptions::Family::kUnix) return listen_unix(context, options);
  if (options.bind_address.empty()) return listen_everywhere(context, options);
  UNISONO_ASSIGN(const std::vector<std::string> addresses, resolve(context, options));
  UNISONO_ASSIGN(const Target target, tcp_target(addresses.front(), options.port));
  UNISONO_ASSIGN(Acceptor acceptor, listen_on(context, options, target, false));
  const std::uint16_t port = port_of(acceptor);
  return Listener{std::move(acceptor), tcp_address_text(port, {addresses.front()})};
}

}  // namespace unisono::tcp
