// What both sides of TLS are made of: OpenSSL's context, its socket, files, and the words for what it says is wrong.
//
// REQUIRES (all of it): load_openssl() succeeded.
#pragma once

#include "backend/openssl.hpp"
#include "base/result.hpp"

#include <memory>
#include <string>
#include <string_view>

namespace fencegate::backend::detail {

using ssl_context = std::shared_ptr<SSL_CTX>;

[[nodiscard]] std::string reason_of(unsigned long code);
// What OpenSSL says of this, which cannot be used.
[[nodiscard]] error unusable(std::string_view what);

// TLS 1.2 or newer, no renegotiation, no session is resumed, nobody is asked for a passphrase.
[[nodiscard]] result<ssl_context> new_context(const SSL_METHOD* side);

// A file, and the word for it in an error.
struct named_file {
  const std::string& path;
  std::string_view name;
};
[[nodiscard]] result<void> show_certificate(SSL_CTX* context, const named_file& certificate, const named_file& key);

// A connection of the context over this socket, which stays the caller's. A peer that has gone raises no signal.
[[nodiscard]] result<SSL*> new_connection(SSL_CTX* context, int descriptor);

// A certificate of the peer that this file's lists revoke, or for whose issuer the file has no valid list, is not accepted. ""
// is no file.
[[nodiscard]] result<void> check_revocations(SSL_CTX* context, const named_file& lists);

}  // namespace fencegate::backend::detail
