// The passwords out of files that connections are made with: those of each configuration that a gate or a lease began with and still
// has. Where a file holds another one, all of them take it over, and no connection ends.
#pragma once

#include "base/secret.hpp"
#include "fence/gate_settings.hpp"

#include <string>
#include <vector>

namespace fencegate::cli {

class secrets_in_use {
 public:
  explicit secrets_in_use(const settings::process& served) { take_over(served); }

  // The places of `next` (mark_places.hpp) for which another password is in use than it has.
  [[nodiscard]] std::vector<std::string> different_in(const settings::process& next) const;
  // Uses those of `next`, which is served.
  void take_over(const settings::process& next);

 private:
  // For whom, and how it is told: another server, another user, or who comes by another kind of TLS, is not told this one.
  struct one {
    std::string place;
    settings::address where;
    settings::tls secured;
    settings::credentials login;

    [[nodiscard]] bool is_of(const one& other) const {
      return place == other.place && where == other.where && secured == other.secured && login.user == other.login.user;
    }
  };
  // Those out of files.
  [[nodiscard]] static std::vector<one> all_of(const settings::process& config);

  std::vector<one> all_;
};

}  // namespace fencegate::cli
