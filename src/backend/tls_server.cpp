#include "backend/tls_server.hpp"

#include "backend/tls_common.hpp"
#include "base/ascii.hpp"
#include "base/log.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

namespace fencegate::backend {
namespace {

using name_list = std::vector<std::string>;

std::string_view text_of(const ASN1_STRING* of) {
  return {reinterpret_cast<const char*>(ssl().ASN1_STRING_get0_data(of)),
          static_cast<std::size_t>(ssl().ASN1_STRING_length(of))};
}

bool is_same_host(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return ascii_lower(x) == ascii_lower(y); });
}

bool has_alternative_name(X509* certificate, const name_list& wanted) {
  auto* const found =
      static_cast<GENERAL_NAMES*>(ssl().X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  if (found == nullptr) return false;
  bool has = false;
  const auto* const all = reinterpret_cast<const OPENSSL_STACK*>(found);
  for (int i = 0; i < ssl().OPENSSL_sk_num(all) && !has; ++i) {
    const auto* const one = static_cast<const GENERAL_NAME*>(ssl().OPENSSL_sk_value(all, i));
    if (one->type != GEN_DNS && one->type != GEN_URI) continue;
    const auto name = text_of(one->d.ia5);
    has = std::any_of(wanted.begin(), wanted.end(), [&](const std::string& may) {
      return one->type == GEN_DNS ? is_same_host(name, may) : name == may;
    });
  }
  ssl().GENERAL_NAMES_free(found);
  return has;
}

bool has_common_name(X509* certificate, const name_list& wanted) {
  const auto* const subject = ssl().X509_get_subject_name(certificate);
  for (int at = -1; (at = ssl().X509_NAME_get_index_by_NID(subject, NID_commonName, at)) >= 0;) {
    const auto name = text_of(ssl().X509_NAME_ENTRY_get_data(ssl().X509_NAME_get_entry(subject, at)));
    if (std::find(wanted.begin(), wanted.end(), name) != wanted.end()) return true;
  }
  return false;
}

// For each certificate of the chain, the client's own last: at depth 0.
int check_client(int accepted, X509_STORE_CTX* chain) {
  if (accepted != 1 || ssl().X509_STORE_CTX_get_error_depth(chain) != 0) return accepted;
  const auto* const connection =
      static_cast<const SSL*>(ssl().X509_STORE_CTX_get_ex_data(chain, ssl().SSL_get_ex_data_X509_STORE_CTX_idx()));
  const auto& wanted = *static_cast<const name_list*>(ssl().SSL_CTX_get_ex_data(ssl().SSL_get_SSL_CTX(connection), 0));
  X509* const shown = ssl().X509_STORE_CTX_get_current_cert(chain);
  if (wanted.empty() || has_alternative_name(shown, wanted) || has_common_name(shown, wanted)) return 1;
  ssl().X509_STORE_CTX_set_error(chain, X509_V_ERR_APPLICATION_VERIFICATION);
  return 0;
}

// `list`: of the client's, each behind its length. `of`: the name of what the listener speaks.
int choose_protocol(SSL* /*connection*/, const unsigned char** out, unsigned char* length, const unsigned char* list,
                    unsigned bytes, void* of) {
  const auto& name = *static_cast<const std::string*>(of);
  for (unsigned at = 0; at < bytes; at += 1U + list[at]) {
    if (list[at] > bytes - at - 1) break;
    if (std::string_view(reinterpret_cast<const char*>(list) + at + 1, list[at]) != name) continue;
    *out = list + at + 1;
    *length = list[at];
    return SSL_TLSEXT_ERR_OK;
  }
  return SSL_TLSEXT_ERR_ALERT_FATAL;
}

}  // namespace

result<tls_files::context> tls_server_context::read_files() {
  auto made = detail::new_context(ssl().TLS_server_method());
  if (!made) return made;
  SSL_CTX* const context = made->get();
  ssl().SSL_CTX_set_num_tickets(context, 0);
  if (const auto shown = detail::show_certificate(context, {how_.certificate, "tls.cert"}, {how_.key, "tls.key"});
      !shown)
    return shown.error();
  if (!speaks_.empty()) ssl().SSL_CTX_set_alpn_select_cb(context, choose_protocol, const_cast<std::string*>(&speaks_));
  if (how_.client_ca.empty()) return made;
  if (ssl().SSL_CTX_load_verify_locations(context, how_.client_ca.c_str(), nullptr) != 1)
    return detail::unusable("tls.client_ca");
  if (const auto listed = detail::check_revocations(context, {how_.client_crl, "tls.client_crl"}); !listed)
    return listed.error();
  ssl().SSL_CTX_set_client_CA_list(context, ssl().SSL_load_client_CA_file(how_.client_ca.c_str()));
  ssl().SSL_CTX_set_ex_data(context, 0, const_cast<name_list*>(&how_.client_name));
  ssl().SSL_CTX_set_verify(context,
                           how_.client_required ? SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT : SSL_VERIFY_PEER,
                           check_client);
  return made;
}

result<void> tls_server_context::check(const settings::listener_tls& how) {
  metrics::counter nobody_reads;
  return tls_server_context(how, {}, {}, {}, nobody_reads).load();
}

result<void> tls_server_context::load() {
  if (const auto& library = load_openssl(); !library) return library.error();
  if (const auto first = files_.current(); !first) return first.error();
  return {};
}

result<std::unique_ptr<tls_stream>> tls_server_context::accept(int descriptor, bool asks_for_protocol) {
  const auto now = files_.current();
  if (!now) return now.error();
  if (now->happened == tls_files::used::what::replaced)
    log::write(log::level::info, "certificates were read again", {{kind_, name_}});
  if (now->happened == tls_files::used::what::kept) {
    refused_.add();
    log::write(log::level::warn, "new certificates cannot be used; those before them stay in use",
               {{kind_, name_}, {"detail", now->detail}});
  }
  const auto made = detail::new_connection(now->of.get(), descriptor);
  if (!made) return made.error();
  auto out = std::make_unique<tls_stream>(*made, tls_stream::peer::client, asks_for_protocol);
  ssl().SSL_set_accept_state(*made);
  return {boost::system::in_place_value, std::move(out)};
}

}  // namespace fencegate::backend
