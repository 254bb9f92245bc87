// A socket that listens where the configuration says, for gates and for the admin listener: TCP, or a unix socket.
//
// A unix socket's file that nobody listens on any more is taken over; one that is in use, and any other file, is an error.
// Who may connect to it, its file's rights say: they are those of the process's umask, where nothing else is asked for.
#pragma once

#include "base/result.hpp"
#include "base/settings.hpp"

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace fencegate {

class listening_socket {
 public:
  // Blocks while a host's name is looked up. The error says which address, and why. `mode`: the rights of a unix socket's
  // file, from before anybody can connect. `shares`: beside sockets of this user on the same port, which share it, too.
  [[nodiscard]] static result<listening_socket> open(const settings::address& at, std::optional<::mode_t> mode = {},
                                                     bool shares = false);
  // Whether another socket may listen on an address of this port meanwhile (SO_REUSEPORT). On a unix socket without effect.
  static void share_port(int released, bool shares);

  listening_socket(listening_socket&& other) noexcept;
  listening_socket& operator=(listening_socket&&) = delete;
  // Closes it, and removes its file.
  ~listening_socket();

  // AF_INET, AF_INET6 or AF_UNIX.
  [[nodiscard]] int family() const { return family_; }
  // The one that the kernel chose where the address says 0; 0 for a unix socket.
  [[nodiscard]] std::uint16_t port() const { return port_; }
  // Of a socket that does not block, and is the caller's to close from here on; its file still goes with this object.
  [[nodiscard]] int release();
  // The same socket once more, by the descriptor that was released: who connects is accepted by either. It has no file.
  [[nodiscard]] result<listening_socket> again(int released) const;
  // The file goes with this one from here on, and no longer with that one.
  void take_file(listening_socket& from);

 private:
  listening_socket() = default;
  [[nodiscard]] int bind(int family, const void* to, unsigned bytes, bool shares = false);
  [[nodiscard]] int listen() const;
  [[nodiscard]] result<void> listen_on_file(const settings::address& at, std::optional<::mode_t> mode);
  [[nodiscard]] result<void> listen_on_port(const settings::address& at, bool shares);

  int socket_ = -1;
  int family_ = 0;
  std::uint16_t port_ = 0;
  std::string file_;  // of a unix socket, as it was made:
  ::dev_t device_ = 0;
  ::ino_t inode_ = 0;
};

}  // namespace fencegate
