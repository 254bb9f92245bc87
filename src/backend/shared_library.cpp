#include "backend/shared_library.hpp"

#include <dlfcn.h>

namespace fencegate::backend {

result<shared_library> shared_library::load(const char* file, const char* package) {
  void* const loaded = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr)  // NOLINTNEXTLINE(concurrency-mt-unsafe): what dlerror() tells is this thread's
    return error{std::string(file) + " is needed (Debian: apt-get install " + package + "): " + dlerror()};
  return shared_library(file, loaded);
}

void* shared_library::find(const char* name) {
  void* const found = dlsym(loaded_, name);
  if (found == nullptr) missing_ = name;
  return found;
}

result<void> shared_library::complete() const {
  if (missing_ != nullptr) return error{std::string(file_) + " is too old: it has no " + missing_};
  return {};
}

}  // namespace fencegate::backend
