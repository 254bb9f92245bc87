// TLS: one connection's stream of bytes over a socket that does not block, and what a server must prove to the gate.
// Of the gate's listeners: backend/tls_server.hpp.
//
// TLS 1.2 or newer, no renegotiation, no session is resumed. Errors are texts for a person, or codes of tls_category().
#pragma once

#include "backend/tls_files.hpp"
#include "base/result.hpp"
#include "fence/gate_settings.hpp"

#include <boost/system/error_code.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

struct ssl_ctx_st;  // OpenSSL's SSL_CTX
struct ssl_st;      // OpenSSL's SSL
struct x509_st;     // OpenSSL's X509

namespace fencegate::backend {

// Of what OpenSSL says is wrong with a stream.
[[nodiscard]] const boost::system::error_category& tls_category();

// One connection, on its owner's thread.
class tls_stream {
 public:
  enum class peer : std::uint8_t { server, client };
  // Takes the stream over; the descriptor stays the caller's, who closes it after this is gone. `must_name`: the peer has to
  // name the protocol that it wants (ALPN).
  tls_stream(ssl_st* of, peer other, bool must_name = false) : of_(of), other_(other), must_name_(must_name) {}
  ~tls_stream();
  tls_stream(const tls_stream&) = delete;
  tls_stream& operator=(const tls_stream&) = delete;

  enum class waits_for : std::uint8_t { nothing, readable, writable };
  // Goes on with the handshake; to be called again when the socket is as it says. nothing: it is done, and the peer has
  // proven what it must.
  [[nodiscard]] result<waits_for> shake_hands();

  // Bytes read or written, at least one; else `failed` says would_block, eof or what is wrong. More may be there than was
  // read, of which the socket does not tell: only would_block says that nothing is. What was not written is to be given
  // again, from its first byte, with whatever follows it. REQUIRES: hands were shaken.
  [[nodiscard]] std::size_t receive(std::span<char> room, boost::system::error_code& failed);
  [[nodiscard]] std::size_t send(std::string_view bytes, boost::system::error_code& failed);
  // The read that would block waits until the socket is writable.
  [[nodiscard]] bool receive_waits_to_write() const { return receive_waits_to_write_; }
  // Behind eof: the peer has not said that it says nothing more. Somebody on the way may have cut off what followed.
  [[nodiscard]] bool is_cut_off() const { return cut_off_; }
  // On both streams the server's side shows one and the same certificate. REQUIRES: hands were shaken on both.
  [[nodiscard]] bool has_certificate_of(const tls_stream& other) const;
  // Tells the peer, if there is room for it, that nothing more comes.
  void say_goodbye();

 private:
  [[nodiscard]] boost::system::error_code failure(int outcome, bool& other_way, int own_way);
  [[nodiscard]] bool has_named() const;
  [[nodiscard]] const x509_st* servers_certificate() const;
  [[nodiscard]] error why_no_handshake(int system_error) const;

  ssl_st* of_;
  const peer other_;
  const bool must_name_;
  bool broken_ = false;
  bool cut_off_ = false;
  bool receive_waits_to_write_ = false;
};

// To a server. From any thread.
class tls_context {
 public:
  // REQUIRES: how.wanted(). `host`: as it was configured; a name or an address. `speaks`: what the connection is for, by
  // ALPN's name of it; "": nothing is said.
  tls_context(settings::tls how, std::string host, std::string speaks = {})
      : how_(std::move(how)),
        host_(std::move(host)),
        speaks_(std::move(speaks)),
        files_({how_.authorities, how_.certificate, how_.key, how_.revoked}, how_.certificate,
               [this] { return load(); }) {}
  // nullptr where no TLS is wanted.
  [[nodiscard]] static std::shared_ptr<tls_context> to(const settings::address& server, const settings::tls& how,
                                                       std::string speaks = {});

  // Whether the files can be used.
  [[nodiscard]] static result<void> check(const settings::tls& how);

  // A stream over this connected socket, which does not block. Reads the files when they have changed, so that
  // certificates can be replaced under a running process: files that cannot be used leave those before them in use. Errors: a
  // file that cannot be used, and there is none before it.
  [[nodiscard]] result<std::unique_ptr<tls_stream>> open(int descriptor);

 private:
  [[nodiscard]] result<tls_files::context> load() const;

  const settings::tls how_;
  const std::string host_, speaks_;
  tls_files files_;
};

}  // namespace fencegate::backend
