#include "backend/openssl.hpp"

#include "backend/shared_library.hpp"

namespace fencegate::backend {
namespace {

openssl found;

result<void> find_functions() {
  auto library = shared_library::load("libssl.so.3", "libssl3");
  if (!library) return error{"TLS needs OpenSSL 3: " + library.error().message};
#define FENCEGATE_OPENSSL_FIND(name) library->find(#name, found.name);
  FENCEGATE_OPENSSL(FENCEGATE_OPENSSL_FIND)
#undef FENCEGATE_OPENSSL_FIND
  return library->complete();
}

}  // namespace

const result<void>& load_openssl() {
  static const result<void> outcome = find_functions();
  return outcome;
}

const openssl& ssl() { return found; }

}  // namespace fencegate::backend
