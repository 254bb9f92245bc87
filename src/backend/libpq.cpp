#include "backend/libpq.hpp"

#include <dlfcn.h>

namespace fencegate::backend {
namespace {

constexpr const char* library = "libpq.so.5";

libpq functions;

result<void> load() {
  void* const loaded = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr)  // NOLINTNEXTLINE(concurrency-mt-unsafe): what dlerror() tells is this thread's
    return error{std::string("PostgreSQL needs ") + library + " (Debian: apt-get install libpq5): " + dlerror()};
  const char* missing = nullptr;
#define FENCEGATE_LIBPQ_FIND(name)                                                   \
  functions.name = reinterpret_cast<decltype(functions.name)>(dlsym(loaded, #name)); \
  if (functions.name == nullptr) missing = #name;
  FENCEGATE_LIBPQ(FENCEGATE_LIBPQ_FIND)
#undef FENCEGATE_LIBPQ_FIND
  if (missing != nullptr)
    return error{std::string(library) + " has no " + missing + ": install that of PostgreSQL 14 or newer"};
  return {};
}

}  // namespace

const result<void>& load_libpq() {
  static const result<void> outcome = load();
  return outcome;
}

const libpq& pq() { return functions; }

}  // namespace fencegate::backend
