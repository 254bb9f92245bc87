#include "backend/tls.hpp"

#include "backend/tls_common.hpp"
#include "base/log.hpp"

#include <boost/asio/error.hpp>
#include <boost/asio/ip/address.hpp>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

namespace fencegate::backend {
namespace {

using boost::system::error_code;
using check = settings::tls::check;

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"  // Boost's: nobody destroys one by its base
class category final : public boost::system::error_category {
  const char* name() const noexcept override { return "tls"; }
  std::string message(int code) const override { return "TLS: " + detail::reason_of(static_cast<unsigned int>(code)); }
};
#pragma GCC diagnostic pop

error_code last_tls_error() { return {static_cast<int>(ssl().ERR_get_error()), tls_category()}; }

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
  const int outcome = ssl().SSL_do_handshake(of_);
  if (outcome == 1 && (!must_name_ || has_named())) return waits_for::nothing;
  if (outcome == 1) return error{"TLS: the client has not named the protocol that it wants (ALPN)"};
  const int system_error = errno;
  switch (ssl().SSL_get_error(of_, outcome)) {
    case SSL_ERROR_WANT_READ: return waits_for::readable;
    case SSL_ERROR_WANT_WRITE: return waits_for::writable;
    default: break;
  }
  broken_ = true;
  return why_no_handshake(system_error);
}

bool tls_stream::has_named() const {
  const unsigned char* name = nullptr;
  unsigned length = 0;
  ssl().SSL_get0_alpn_selected(of_, &name, &length);
  return length != 0;
}

error tls_stream::why_no_handshake(int system_error) const {
  const std::string who = other_ == peer::server ? "the server" : "the client";
  const unsigned long code = ssl().ERR_peek_error();
  const int reason = code == 0 ? 0 : ERR_GET_REASON(code);
  // Where nothing is checked there is a verdict, too, and it means nothing.
  if (const long verdict = ssl().SSL_get_verify_result(of_);
      reason == SSL_R_CERTIFICATE_VERIFY_FAILED && verdict != X509_V_OK)
    return error{"TLS: " + who + "'s certificate is not accepted: " +
                 (verdict == X509_V_ERR_APPLICATION_VERIFICATION
                      ? "it has none of client_name"
                      : std::string(ssl().X509_verify_cert_error_string(verdict)))};
  if (reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE) return error{"TLS: " + who + " has sent no certificate"};
  if (reason == SSL_R_WRONG_VERSION_NUMBER || reason == SSL_R_HTTP_REQUEST || reason == SSL_R_HTTPS_PROXY_REQUEST)
    return error{"TLS: " + who + " does not speak it: what came is plain text, or something else"};
  if (code != 0) return error{last_tls_error().message()};
  const std::string why = system_error != 0 ? error_code(system_error, boost::system::system_category()).message()
                                            : who + " closed the connection";
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
  if (why == SSL_ERROR_SSL && code != 0) return last_tls_error();
  if (system_error != 0) return {system_error, boost::system::system_category()};
  cut_off_ = true;
  return boost::asio::error::eof;
}

const x509_st* tls_stream::servers_certificate() const {
  return other_ == peer::server ? ssl().SSL_get0_peer_certificate(of_) : ssl().SSL_get_certificate(of_);
}

bool tls_stream::has_certificate_of(const tls_stream& other) const {
  const auto* const one = servers_certificate();
  const auto* const another = other.servers_certificate();
  return one != nullptr && another != nullptr && ssl().X509_cmp(one, another) == 0;
}

void tls_stream::say_goodbye() {
  if (std::exchange(broken_, true)) return;
  ssl().ERR_clear_error();
  static_cast<void>(ssl().SSL_shutdown(of_));
}

// ── what all connections of a gate share ────────────────────────────────────────────────────────────────────────────

std::shared_ptr<tls_context> tls_context::to(const settings::address& server, const settings::tls& how,
                                             std::string speaks) {
  return how.wanted() ? std::make_shared<tls_context>(how, server.host, std::move(speaks)) : nullptr;
}

result<void> tls_context::check(const settings::tls& how) {
  if (const auto& library = load_openssl(); !library) return library.error();
  if (const auto loaded = tls_context(how, {}).load(); !loaded) return loaded.error();
  return {};
}

result<tls_files::context> tls_context::load() const {
  auto made = detail::new_context(ssl().TLS_client_method());
  if (!made) return made;
  SSL_CTX* const context = made->get();
  const bool verifies = how_.checks == check::authority || how_.checks == check::name;
  ssl().SSL_CTX_set_verify(context, verifies ? SSL_VERIFY_PEER : SSL_VERIFY_NONE, nullptr);
  if (verifies && ssl().SSL_CTX_load_verify_locations(context, how_.authorities.c_str(), nullptr) != 1)
    return detail::unusable(how_.called.authorities);
  if (const auto listed = detail::check_revocations(context, {how_.revoked, how_.called.revoked}); !listed)
    return listed.error();
  if (!speaks_.empty()) {
    const std::string list = static_cast<char>(speaks_.size()) + speaks_;
    const auto* const bytes = reinterpret_cast<const unsigned char*>(list.data());
    if (ssl().SSL_CTX_set_alpn_protos(context, bytes, static_cast<unsigned>(list.size())) != 0)
      return detail::unusable("OpenSSL");
  }
  if (how_.certificate.empty()) return made;
  const auto shown =
      detail::show_certificate(context, {how_.certificate, how_.called.certificate}, {how_.key, how_.called.key});
  return shown ? made : result<tls_files::context>(shown.error());
}

result<std::unique_ptr<tls_stream>> tls_context::open(int descriptor) {
  if (const auto& library = load_openssl(); !library) return library.error();
  const auto now = files_.current();
  if (!now) return now.error();
  if (now->happened == tls_files::used::what::kept)
    log::write(log::level::warn, "new certificates cannot be used; those before them stay in use",
               {{"server", host_}, {"detail", now->detail}});
  const auto made = detail::new_connection(now->of.get(), descriptor);
  if (!made) return made.error();
  SSL* const raw = *made;
  auto out = std::make_unique<tls_stream>(raw, tls_stream::peer::server);
  ssl().SSL_set_connect_state(raw);
  const bool numeric = is_address(host_);
  X509_VERIFY_PARAM* const wanted = ssl().SSL_get0_param(raw);
  bool set = true;
  if (how_.checks == check::name) {
    ssl().X509_VERIFY_PARAM_set_hostflags(wanted, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    set = (numeric ? ssl().X509_VERIFY_PARAM_set1_ip_asc(wanted, host_.c_str())
                   : ssl().X509_VERIFY_PARAM_set1_host(wanted, host_.c_str(), host_.size())) == 1;
  }
  // The name that is asked for (RFC 6066, section 3): never an address.
  if (!numeric)
    set = set && ssl().SSL_ctrl(raw, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                                const_cast<char*>(host_.c_str())) == 1;
  if (!set) return detail::unusable("the name of the server");
  return {boost::system::in_place_value, std::move(out)};
}

}  // namespace fencegate::backend
