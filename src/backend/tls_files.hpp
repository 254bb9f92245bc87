// The files that TLS is made of, for as long as a process runs: read again when they have changed.
//
// Rule kept: a certificate that has expired, or is not valid yet, never replaces one that is valid.
#pragma once

#include "base/file_stamp.hpp"
#include "base/result.hpp"

#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

struct ssl_ctx_st;  // OpenSSL's SSL_CTX

namespace fencegate::backend {

// When all certificates of a PEM file are valid (RFC 5280, section 4.1.2.5), in seconds since 1970.
struct certificate_validity {
  std::time_t from = 0, until = 0;

  [[nodiscard]] bool holds_at(std::time_t now) const { return from <= now && now <= until; }
};
// Errors: there is no such file, or no certificate in it.
[[nodiscard]] result<certificate_validity> validity_of(const std::string& certificate);

// A warning is due for so long before a certificate expires.
inline constexpr std::time_t certificate_warning_seconds = 14 * 24 * 3'600;
// What an operator has to know of a certificate's validity; "": nothing. A file that cannot be read is no matter of this.
[[nodiscard]] std::string validity_problem(const std::string& certificate, std::time_t now);

// All files of TLS are read again by their next use, whether they have changed or not. From any thread.
void read_tls_files_again();

// One set of files, and the context that is made of them. From any thread.
class tls_files {
 public:
  using context = std::shared_ptr<ssl_ctx_st>;
  struct used {
    context of;
    enum class what : std::uint8_t { same, replaced, kept } happened = what::same;
    std::string detail{};  // kept: why the new files are not used; told once for each change
  };

  // `paths`: of all files; `certificate`: the one that is shown, "" = none. `make` reads them.
  tls_files(std::vector<std::string> paths, std::string certificate, std::function<result<context>()> make)
      : paths_(std::move(paths)), certificate_(std::move(certificate)), make_(std::move(make)) {}

  // The files as they are now; where they cannot be used, or are not valid at this moment, those before them. Errors: there
  // are none before them. A first certificate is used though it is not valid: clients may not look at it.
  [[nodiscard]] result<used> current();

 private:
  struct state {
    std::vector<file_stamp> files;
    std::uint64_t forced = 0;  // how often all were to be read again
    friend bool operator==(const state&, const state&) = default;
  };
  [[nodiscard]] state look() const;

  const std::vector<std::string> paths_;
  const std::string certificate_;
  const std::function<result<context>()> make_;
  std::mutex mutex_;
  context loaded_;
  certificate_validity valid_;  // of loaded_
  state loaded_of_, refused_;   // the files of loaded_; the last ones that were not used
};

}  // namespace fencegate::backend
