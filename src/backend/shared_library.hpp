// Libraries that are loaded when they are first needed: who does not need them neither waits for them nor holds their pages.
#pragma once

#include "base/result.hpp"

namespace fencegate::backend {

class shared_library {
 public:
  // It stays loaded. The error says which Debian package has it.
  [[nodiscard]] static result<shared_library> load(const char* file, const char* package);

  // Looks into what it depends on, too.
  template <class Function>
  void find(const char* name, Function*& into) {
    into = reinterpret_cast<Function*>(find(name));
  }
  // An error: one that was looked for is not there.
  [[nodiscard]] result<void> complete() const;

 private:
  shared_library(const char* file, void* loaded) : file_(file), loaded_(loaded) {}
  [[nodiscard]] void* find(const char* name);

  const char* file_;
  void* loaded_;
  const char* missing_ = nullptr;
};

}  // namespace fencegate::backend
