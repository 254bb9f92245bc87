// What a sidecar writes down of a term that it holds for a writer, before any connection is bound to it: so that a sidecar that
// is started anew may go on with that very term, if the issuer still confirms it.
//
// The file holds the id of the grant, a secret: only its owner may read it. It is written whole, or not at all.
#pragma once

#include "base/result.hpp"
#include "lease/clock.hpp"
#include "lease/issuer.hpp"

#include <optional>
#include <string>

namespace fencegate::lease {

struct term_record {
  term held;
  std::optional<boot_clock::time_point> writer_started;  // as it was reported
};

class term_file {
 public:
  // In a directory that exists: STATE_DIR/WRITER.term. Nothing is read or written yet.
  term_file(const std::string& directory, const std::string& writer);

  // nullopt: there is none, or it is of another start of this machine. An error: it cannot be read, or is not whole.
  [[nodiscard]] result<std::optional<term_record>> read() const;
  // Blocks until it is on the disk.
  [[nodiscard]] result<void> write(const term_record& record) const;
  [[nodiscard]] result<void> remove() const;

 private:
  const std::string directory_, path_;
};

// A directory that is this process's alone as long as this object lives: two that resume one term would both hold it.
class state_directory {
 public:
  // Makes the directory where there is none. Errors: it cannot be had, or another process has it.
  [[nodiscard]] static result<state_directory> open(const std::string& path);

  state_directory(state_directory&& other) noexcept;
  state_directory& operator=(state_directory&&) = delete;
  ~state_directory();

 private:
  explicit state_directory(int lock) : lock_(lock) {}
  int lock_ = -1;
};

}  // namespace fencegate::lease
