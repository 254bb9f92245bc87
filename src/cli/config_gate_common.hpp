// The parts of a gate's section that gates of every protocol have.
#pragma once

#include "cli/config_section.hpp"
#include "cli/config_url.hpp"
#include "fence/gate_settings.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

namespace fencegate::cli {

inline constexpr std::int64_t connections_max_most = 1'000'000;

// The keys that are absent leave `out` as it is.
void read_policy(section& policy, fence::policy& out);
void read_timeouts(report& to, const YAML::Node& node, settings::timeouts& out);

// What the file that this key names holds, without a line end; nullopt: it names none, or it was complained about.
[[nodiscard]] std::optional<secret> read_secret(report& to, section& in, std::string_view key);

using url_parser = result<upstream>(std::string_view text);
// The key `upstream`, with the password that `password_file` names.
[[nodiscard]] std::optional<upstream> read_upstream(report& to, section& gate, url_parser* parse);

// Timeouts and connections_max.
template <class Gate>
void read_limits(report& to, section& gate, Gate& out) {
  if (const auto timeouts = gate.node("timeouts")) read_timeouts(to, *timeouts, out.limits_time);
  gate.count("connections_max", out.connections_max, 1, connections_max_most);
}

// Complains, at the key of the URL that names them, about files that cannot be read.
void check_files(report& to, section& in, std::string_view key, const settings::tls& secured);

// The key `tls` of a gate that listens there.
void read_listener_tls(report& to, section& gate, const settings::address& listen, settings::listener_tls& out);

// Complains when `node` is not a list.
[[nodiscard]] bool is_list(report& to, const YAML::Node& node, std::string_view what);

}  // namespace fencegate::cli
