#include "backend/openssl.hpp"

#include "backend/shared_library.hpp"

namespace fencegate::backend {
namespace {

openssl functions;

result<void> load() {
  auto library = shared_library::load("libssl.so.3", "libssl3");
  if (!library) return error{"TLS needs OpenSSL 3: " + library.error().message};
#define FENCEGATE_OPENSSL_FIND(name) library->find(#name, functions.name);
  FENCEGATE_OPENSSL(FENCEGATE_OPENSSL_FIND)
#undef FENCEGATE_OPENSSL_FIND
  return library->complete();
}

}  // namespace

const result<void>& load_openssl() {
  static const result<void> outcome = load();
  return outcome;
}

const openssl& ssl() { return functions; }

}  // namespace fencegate::backend
