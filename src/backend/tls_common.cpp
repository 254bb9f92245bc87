#include "backend/tls_common.hpp"

#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace fencegate::backend::detail {
namespace {

// Nobody is there to be asked for the passphrase of a key.
int no_passphrase(char* /*into*/, int /*size*/, int /*writing*/, void* /*of*/) { return 0; }

// ── a socket, as OpenSSL sees it ────────────────────────────────────────────────────────────────────────────────────
// OpenSSL's own writes by write(), which ends a process that does not ignore SIGPIPE.

int descriptor_of(BIO* socket) { return static_cast<int>(reinterpret_cast<std::intptr_t>(ssl().BIO_get_data(socket))); }

int outcome_of(BIO* socket, ssize_t bytes, int again) {
  ssl().BIO_clear_flags(socket, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
  if (bytes < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
    ssl().BIO_set_flags(socket, again | BIO_FLAGS_SHOULD_RETRY);
  return static_cast<int>(bytes);
}

int read_socket(BIO* socket, char* into, int size) {
  ssize_t got = 0;
  do {
    got = ::recv(descriptor_of(socket), into, static_cast<std::size_t>(size), MSG_DONTWAIT);
  } while (got < 0 && errno == EINTR);
  return outcome_of(socket, got, BIO_FLAGS_READ);
}

int write_socket(BIO* socket, const char* bytes, int size) {
  ssize_t gone = 0;
  do {
    gone = ::send(descriptor_of(socket), bytes, static_cast<std::size_t>(size), MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (gone < 0 && errno == EINTR);
  return outcome_of(socket, gone, BIO_FLAGS_WRITE);
}

// Nothing is kept back, so that there is nothing to be flushed.
long control_socket(BIO* /*socket*/, int what, long /*number*/, void* /*pointer*/) {
  return what == BIO_CTRL_FLUSH ? 1 : 0;
}

const BIO_METHOD* socket_method() {
  static const BIO_METHOD* const method = [] {
    BIO_METHOD* const made = ssl().BIO_meth_new(BIO_TYPE_SOURCE_SINK, "fencegate's socket");
    if (made == nullptr) return made;
    ssl().BIO_meth_set_read(made, read_socket);
    ssl().BIO_meth_set_write(made, write_socket);
    ssl().BIO_meth_set_ctrl(made, control_socket);
    return made;
  }();
  return method;
}

}  // namespace

std::string reason_of(unsigned long code) {
  if (ERR_SYSTEM_ERROR(code)) return std::generic_category().message(ERR_GET_REASON(code));
  const char* const text = ssl().ERR_reason_error_string(code);
  return text != nullptr ? text : "an unknown error";
}

error unusable(std::string_view what) {
  const unsigned long code = ssl().ERR_get_error();
  ssl().ERR_clear_error();
  return error{"TLS: cannot use " + std::string(what) + ": " + reason_of(code)};
}

result<ssl_context> new_context(const SSL_METHOD* side) {
  ssl().ERR_clear_error();
  ssl_context out(ssl().SSL_CTX_new(side), ssl().SSL_CTX_free);
  if (out == nullptr) return unusable("OpenSSL");
  SSL_CTX* const context = out.get();
  ssl().SSL_CTX_set_default_passwd_cb(context, no_passphrase);
  ssl().SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET);
  // By the function that the macros of OpenSSL's headers stand for.
  ssl().SSL_CTX_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, nullptr);
  ssl().SSL_CTX_ctrl(context, SSL_CTRL_MODE,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS,
                     nullptr);
  ssl().SSL_CTX_ctrl(context, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, nullptr);
  return out;
}

result<void> show_certificate(SSL_CTX* context, const named_file& certificate, const named_file& key) {
  if (ssl().SSL_CTX_use_certificate_chain_file(context, certificate.path.c_str()) != 1)
    return unusable(certificate.name);
  if (ssl().SSL_CTX_use_PrivateKey_file(context, key.path.c_str(), SSL_FILETYPE_PEM) != 1) return unusable(key.name);
  if (ssl().SSL_CTX_check_private_key(context) != 1) return unusable(key.name);
  return {};
}

result<SSL*> new_connection(SSL_CTX* context, int descriptor) {
  ssl().ERR_clear_error();
  BIO* const socket = socket_method() == nullptr ? nullptr : ssl().BIO_new(socket_method());
  if (socket == nullptr) return unusable("OpenSSL");
  SSL* const out = ssl().SSL_new(context);
  if (out == nullptr) return unusable("OpenSSL");
  ssl().BIO_set_data(socket, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)));
  ssl().BIO_set_init(socket, 1);
  ssl().SSL_set_bio(out, socket, socket);  // which it frees
  return out;
}

result<void> check_revocations(SSL_CTX* context, const named_file& lists) {
  if (lists.path.empty()) return {};
  if (ssl().SSL_CTX_load_verify_locations(context, lists.path.c_str(), nullptr) != 1) return unusable(lists.name);
  // As libpq and nginx do: of all certificates up to the root.
  constexpr unsigned long all = X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL;
  if (ssl().X509_STORE_set_flags(ssl().SSL_CTX_get_cert_store(context), all) != 1) return unusable("OpenSSL");
  return {};
}

}  // namespace fencegate::backend::detail
