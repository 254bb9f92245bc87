#include "backend/libpq.hpp"

#include "backend/shared_library.hpp"

namespace fencegate::backend {
namespace {

libpq functions;

int no_passphrase(char* /*into*/, int /*size*/, PGconn* /*of*/) { return 0; }

result<void> load() {
  auto library = shared_library::load("libpq.so.5", "libpq5");
  if (!library) return error{"PostgreSQL needs libpq of version 14 or newer: " + library.error().message};
#define FENCEGATE_LIBPQ_FIND(name) library->find(#name, functions.name);
  FENCEGATE_LIBPQ(FENCEGATE_LIBPQ_FIND)
#undef FENCEGATE_LIBPQ_FIND
  if (auto complete = library->complete(); !complete) return complete;
  library->find("SSL_pending", functions.SSL_pending);
  functions.PQsetSSLKeyPassHook_OpenSSL(no_passphrase);
  return {};
}

}  // namespace

const result<void>& load_libpq() {
  static const result<void> outcome = load();
  return outcome;
}

const libpq& pq() { return functions; }

}  // namespace fencegate::backend
