// TLS of a listener: what it shows its clients, and what they must prove.
#pragma once

#include "backend/tls.hpp"
#include "backend/tls_files.hpp"
#include "base/metrics.hpp"
#include "base/result.hpp"
#include "fence/gate_settings.hpp"

#include <memory>
#include <string>
#include <string_view>

namespace fencegate::backend {

// From any thread.
class tls_server_context {
 public:
  // `kind` of listener ("gate") and its name, for the log. `speaks`: what clients may ask for, by ALPN's name of it; "": it is
  // not looked at.
  // `refused` counts files that could not be used. REQUIRES: how.wanted(); the figure lives longer, and this longer than its
  // connections.
  tls_server_context(settings::listener_tls how, std::string_view kind, std::string name, std::string speaks,
                     metrics::counter& refused)
      : how_(std::move(how)),
        kind_(kind),
        name_(std::move(name)),
        speaks_(std::move(speaks)),
        refused_(refused),
        files_({how_.certificate, how_.key, how_.client_ca, how_.client_crl}, how_.certificate,
               [this] { return read_files(); }) {}

  // Whether the files can be used.
  [[nodiscard]] static result<void> check(const settings::listener_tls& how);

  // Reads the files. Errors: they cannot be used.
  [[nodiscard]] result<void> load();

  // A connection over this accepted socket, which does not block. Reads the files when they have changed: those that cannot be
  // used, or are not valid at this moment, are logged once, and the ones before them stay in use. `asks_for_protocol`: the client must name what the listener
  // speaks. REQUIRES: load() succeeded.
  [[nodiscard]] result<std::unique_ptr<tls_stream>> accept(int descriptor, bool asks_for_protocol = false);

 private:
  [[nodiscard]] result<tls_files::context> read_files();

  const settings::listener_tls how_;
  const std::string_view kind_;  // a literal
  const std::string name_, speaks_;
  metrics::counter& refused_;
  tls_files files_;
};

}  // namespace fencegate::backend
