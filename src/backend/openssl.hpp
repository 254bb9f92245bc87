// OpenSSL, loaded when the first connection goes through TLS.
#pragma once

#include "base/result.hpp"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

// What is used of it.
// clang-format off
#define FENCEGATE_OPENSSL(each) \
  each(ASN1_TIME_to_tm) each(BIO_free) each(BIO_new_file) each(PEM_read_bio_X509) each(X509_STORE_set_flags) \
  each(SSL_CTX_get_cert_store) each(X509_free) each(X509_get0_notAfter) each(X509_get0_notBefore) \
  each(ASN1_STRING_get0_data) each(ASN1_STRING_length) each(GENERAL_NAMES_free) each(OPENSSL_sk_num) \
  each(OPENSSL_sk_value) each(SSL_CTX_get_ex_data) each(SSL_CTX_set_alpn_select_cb) each(SSL_CTX_set_client_CA_list) \
  each(SSL_CTX_set_ex_data) each(SSL_CTX_set_num_tickets) each(SSL_get0_alpn_selected) \
  each(SSL_get0_peer_certificate) each(SSL_get_SSL_CTX) each(SSL_get_certificate) each(X509_cmp) \
  each(SSL_get_ex_data_X509_STORE_CTX_idx) each(SSL_load_client_CA_file) each(SSL_set_accept_state) \
  each(TLS_server_method) each(X509_NAME_ENTRY_get_data) each(X509_NAME_get_entry) each(X509_NAME_get_index_by_NID) \
  each(X509_STORE_CTX_get_current_cert) each(X509_STORE_CTX_get_error_depth) each(X509_STORE_CTX_get_ex_data) \
  each(X509_STORE_CTX_set_error) each(X509_get_ext_d2i) each(X509_get_subject_name) \
  each(BIO_clear_flags) each(BIO_get_data) each(BIO_meth_new) each(BIO_meth_set_ctrl) each(BIO_meth_set_read) \
  each(BIO_meth_set_write) each(BIO_new) each(BIO_set_data) each(BIO_set_flags) each(BIO_set_init) \
  each(ERR_clear_error) each(ERR_get_error) each(ERR_peek_error) each(ERR_reason_error_string) \
  each(SSL_CTX_check_private_key) each(SSL_CTX_ctrl) each(SSL_CTX_free) each(SSL_CTX_load_verify_locations) \
  each(SSL_CTX_new) each(SSL_CTX_set_alpn_protos) each(SSL_CTX_set_default_passwd_cb) each(SSL_CTX_set_options) \
  each(SSL_CTX_set_verify) each(SSL_CTX_use_PrivateKey_file) each(SSL_CTX_use_certificate_chain_file) each(SSL_ctrl) \
  each(SSL_do_handshake) each(SSL_free) each(SSL_get0_param) each(SSL_get_error) each(SSL_get_verify_result) \
  each(SSL_new) each(SSL_read) each(SSL_set_bio) each(SSL_set_connect_state) each(SSL_shutdown) each(SSL_write) \
  each(TLS_client_method) each(X509_VERIFY_PARAM_set1_host) each(X509_VERIFY_PARAM_set1_ip_asc) \
  each(X509_VERIFY_PARAM_set_hostflags) each(X509_verify_cert_error_string)
// clang-format on

namespace fencegate::backend {

// Its functions under their own names.
struct openssl {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declaration
#define FENCEGATE_OPENSSL_MEMBER(name) decltype(&::name) name = nullptr;
  FENCEGATE_OPENSSL(FENCEGATE_OPENSSL_MEMBER)
#undef FENCEGATE_OPENSSL_MEMBER
};

// Loads the library, once; an error when there is none, or one before 3.0. From any thread.
[[nodiscard]] const result<void>& load_openssl();

// REQUIRES: load_openssl() succeeded.
[[nodiscard]] const openssl& ssl();

}  // namespace fencegate::backend
