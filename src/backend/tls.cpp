#include "backend/tls.hpp"

#include "backend/openssl.hpp"

#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>
#include <utility>

namespace fencegate::backend {
namespace {

using boost::system::error_code;
using check = settings::tls::check;

std::string reason_of(unsigned long code) {
  if (ERR_SYSTEM_ERROR(code)) return std::generic_category().message(ERR_GET_REASON(code));
  const char* const text = ssl().ERR_reason_error_string(code);
  return text != nullptr ? text : "an unknown error";
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"  // Boost's: nobody destroys one by its base
class category final : public boost::system::error_category {
  const char* name() const noexcept override { return "tls"; }
  std::string message(int code) const override { return "TLS: " + reason_of(static_cast<unsigned int>(code)); }
};
#pragma GCC diagnostic pop

error_code last_tls_error() { return {static_cast<int>(ssl().ERR_get_error()), tls_category()}; }

// What OpenSSL says of files.
error unusable(const std::string& what) {
  const unsigned long code = ssl().ERR_get_error();
  ssl().ERR_clear_error();
  return error{"TLS: cannot use " + what + ": " + reason_of(code)};
}

// Nobody is there to be asked for the passphrase of a key.
int no_passphrase(char* /*into*/, int /*size*/, int /*writing*/, void* /*of*/) { return 0; }

bool is_address(const std::string& host) {
  error_code failed;
  static_cast<void>(boost::asio::ip::make_address(host, failed));
  return !failed;
}

int length_of(std::size_t bytes) {
  return static_cast<int>(std::min<std::size_t>(bytes, std::numeric_limits<int>::max()));
}

}  // namespace

const boost::system::error_category& tls_category() {
  static const category one;
  return one;
}

// ── a connection ────────────────────────────────────────────────────────────────────────────────────────────────────

tls_stream::~tls_stream() { ssl().SSL_free(of_); }

result<tls_stream::waits_for> tls_stream::shake_hands() {
  ssl().ERR_clear_error();
  errno = 0;
  const int outcome = ssl().SSL_connect(of_);
  if (outcome == 1) return waits_for::nothing;
  const int system_error = errno;
  switch (ssl().SSL_get_error(of_, outcome)) {
    case SSL_ERROR_WANT_READ: return waits_for::readable;
    case SSL_ERROR_WANT_WRITE: return waits_for::writable;
    default: break;
  }
  broken_ = true;
  // Where nothing is checked there is a verdict, too, and it means nothing.
  const bool not_accepted = ERR_GET_REASON(ssl().ERR_peek_error()) == SSL_R_CERTIFICATE_VERIFY_FAILED;
  if (const long verdict = ssl().SSL_get_verify_result(of_); not_accepted && verdict != X509_V_OK)
    return error{"TLS: the server's certificate is not accepted: " +
                 std::string(ssl().X509_verify_cert_error_string(verdict))};
  if (ssl().ERR_peek_error() != 0) return error{last_tls_error().message()};
  const std::string why = system_error != 0 ? error_code(system_error, boost::system::system_category()).message()
                                            : "the server closed the connection";
  return error{"TLS: the handshake failed: " + why};
}

std::size_t tls_stream::receive(std::span<char> room, error_code& failed) {
  receive_waits_to_write_ = false;
  ssl().ERR_clear_error();
  errno = 0;
  const int got = ssl().SSL_read(of_, room.data(), length_of(room.size()));
  failed = got > 0 ? error_code() : failure(got, receive_waits_to_write_, SSL_ERROR_WANT_READ);
  return got > 0 ? static_cast<std::size_t>(got) : 0;
}

std::size_t tls_stream::send(std::string_view bytes, error_code& failed) {
  bool waits_to_read = false;
  ssl().ERR_clear_error();
  errno = 0;
  const int gone = ssl().SSL_write(of_, bytes.data(), length_of(bytes.size()));
  failed = gone > 0 ? error_code() : failure(gone, waits_to_read, SSL_ERROR_WANT_WRITE);
  // Only renegotiation, which is off, would have a write wait for the peer.
  if (waits_to_read) failed = boost::asio::error::connection_aborted;
  return gone > 0 ? static_cast<std::size_t>(gone) : 0;
}

error_code tls_stream::failure(int outcome, bool& other_way, int own_way) {
  const int system_error = errno;
  const int why = ssl().SSL_get_error(of_, outcome);
  if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) {
    other_way = why != own_way;
    return boost::asio::error::would_block;
  }
  if (why == SSL_ERROR_ZERO_RETURN) return boost::asio::error::eof;
  broken_ = true;
  const unsigned long code = ssl().ERR_peek_error();
  // An end without a goodbye: what was read is framed by the protocol above, which knows whether it was whole.
  if (why == SSL_ERROR_SSL && ERR_GET_REASON(code) == SSL_R_UNEXPECTED_EOF_WHILE_READING)
    return boost::asio::error::eof;
  if (why == SSL_ERROR_SSL && code != 0) return last_tls_error();
  if (system_error != 0) return {system_error, boost::system::system_category()};
  return boost::asio::error::eof;
}

void tls_stream::say_goodbye() {
  if (std::exchange(broken_, true)) return;
  ssl().ERR_clear_error();
  static_cast<void>(ssl().SSL_shutdown(of_));
}

// ── what all connections of a gate share ────────────────────────────────────────────────────────────────────────────

result<tls_context::loaded> tls_context::load() const {
  ssl().ERR_clear_error();
  loaded out(ssl().SSL_CTX_new(ssl().TLS_client_method()), ssl().SSL_CTX_free);
  if (out == nullptr) return unusable("OpenSSL");
  SSL_CTX* const context = out.get();
  ssl().SSL_CTX_set_default_passwd_cb(context, no_passphrase);
  ssl().SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // By the function that the macros of OpenSSL's headers stand for.
  ssl().SSL_CTX_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_2_VERSION, nullptr);
  ssl().SSL_CTX_ctrl(context, SSL_CTRL_MODE,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS,
                     nullptr);
  ssl().SSL_CTX_ctrl(context, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, nullptr);
  const bool verifies = how_.checks == check::authority || how_.checks == check::name;
  ssl().SSL_CTX_set_verify(context, verifies ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  if (verifies && ssl().SSL_CTX_load_verify_locations(context, how_.authorities.c_str(), nullptr) != 1)
    return unusable("sslrootcert");
  if (how_.certificate.empty()) return out;
  if (ssl().SSL_CTX_use_certificate_chain_file(context, how_.certificate.c_str()) != 1) return unusable("sslcert");
  if (ssl().SSL_CTX_use_PrivateKey_file(context, how_.key.c_str(), SSL_FILETYPE_PEM) != 1) return unusable("sslkey");
  if (ssl().SSL_CTX_check_private_key(context) != 1) return unusable("sslkey");
  return out;
}

result<tls_context::loaded> tls_context::current() {
  const std::lock_guard lock(mutex_);
  times now;
  for (const auto* path : {&how_.authorities, &how_.certificate, &how_.key}) {
    std::error_code none;
    now.push_back(path->empty() ? times::value_type() : std::filesystem::last_write_time(*path, none));
  }
  if (loaded_ != nullptr && now == loaded_of_) return loaded_;
  auto fresh = load();
  if (!fresh) return fresh.error();
  loaded_ = *fresh;
  loaded_of_ = std::move(now);
  return loaded_;
}

result<std::unique_ptr<tls_stream>> tls_context::open(int descriptor) {
  if (const auto& library = load_openssl(); !library) return library.error();
  const auto context = current();
  if (!context) return context.error();
  SSL* const raw = ssl().SSL_new(context->get());
  if (raw == nullptr) return unusable("OpenSSL");
  auto out = std::make_unique<tls_stream>(raw);
  const bool numeric = is_address(host_);
  X509_VERIFY_PARAM* const wanted = ssl().SSL_get0_param(raw);
  bool set = ssl().SSL_set_fd(raw, descriptor) == 1;
  if (how_.checks == check::name) {
    ssl().X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    set = set && (numeric ? ssl().X509_VERIFY_PARAM_set1_ip_asc(wanted, host_.c_str())
                          : ssl().X509_VERIFY_PARAM_set1_host(wanted, host_.c_str(), host_.size())) == 1;
  }
  // The name that is asked for (RFC 6066, section 3): never an address.
  if (!numeric)
    set = set && ssl().SSL_ctrl(raw, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                                const_cast<char*>(host_.c_str())) == 1;
  if (!set) return unusable("the name of the server");
  return {boost::system::in_place_value, std::move(out)};
}

}  // namespace fencegate::backend
