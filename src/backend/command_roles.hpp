// The short table behind command_table: what a command means to the gate where the server's flags do not say it.
#pragma once

#include "backend/command_table.hpp"

#include <optional>
#include <string_view>
#include <vector>

namespace fencegate::backend {

// nullopt: not in the table; the server's flags decide.
[[nodiscard]] std::optional<command_role> role_by_name(std::string_view lower_name);

// What is refused unless an operator allows it, sorted: "config|set" for a subcommand.
[[nodiscard]] std::vector<std::string_view> refused_commands();

// May wait for what others write. (Before 7.0 no flag of the server's says so.)
[[nodiscard]] bool blocks(std::string_view lower_name);

// Those in the table, "client|getname".
[[nodiscard]] std::vector<std::string_view> subcommands_by_name();

// Its answer is short whatever is stored, and comes soon: others may wait behind it. (SET … GET is for the caller to see.)
[[nodiscard]] bool answers_shortly(std::string_view lower_name);

// How a write answers from within a script.
[[nodiscard]] script_answer answer_in_script(std::string_view lower_name);

// Leaves something with its connection that the gate cannot give to another one, or asks for what only this one knows.
[[nodiscard]] bool stays_with_connection(std::string_view lower_name);

// No script can run it, and so no route of an HTTP gate, whatever a server says of it. "object|encoding" for a subcommand.
[[nodiscard]] bool never_in_script(std::string_view lower_name);

// SYNC and PSYNC: what they are answered with is no reply. Refused even where an operator would allow it.
[[nodiscard]] bool is_replication(std::string_view lower_name);
inline constexpr std::string_view replication_refused =
    "replication does not go through fencegate: replicas, and redis-cli --replica and --rdb, connect to the server "
    "itself";

// Names of whole commands that must be known for what they are when they come: those that are refused, those that the
// gate's state machine owns, those that stay with their connection, and containers of such.
[[nodiscard]] std::vector<std::string_view> critical_commands();

}  // namespace fencegate::backend
