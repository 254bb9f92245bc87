// Every key of the configuration and every word that a key may take: what the reader accepts, and nothing else. The
// tests hold config/fencegate.yaml and config/fencegate.schema.json to this list.
#pragma once

#include "fence/gate_settings.hpp"

#include <array>
#include <span>
#include <string_view>

namespace fencegate::cli {

namespace keys {
inline constexpr std::array<std::string_view, 9> process{"threads",       "busy_poll_us", "strict", "admin", "log",
                                                         "drain_timeout", "stores",       "leases", "gates"};
inline constexpr std::array<std::string_view, 2> admin{"listen", "tls"};
inline constexpr std::array<std::string_view, 2> log{"level", "format"};
inline constexpr std::array<std::string_view, 3> store{"url", "password_file", "pool"};
inline constexpr std::array<std::string_view, 14> leases{
    "listen",     "socket_mode", "issuer", "issuers",   "ttl",       "margin",  "skew",
    "round_trip", "stop_grace",  "stride", "resources", "state_dir", "writers", "probes"};
inline constexpr std::array<std::string_view, 1> lease_issuer{"store"};
inline constexpr std::array<std::string_view, 2> lease_writer{"containers", "writer_timeout"};
inline constexpr std::array<std::string_view, 4> lease_rule{"match", "issuer", "lock_delay", "seal"};
inline constexpr std::array<std::string_view, 37> gate{
    "name",          "protocol",     "listen",      "tls",          "tag_from",        "tag",
    "lease",         "writer",       "on_loss",     "standby",      "standby_wait",    "upstream",
    "password_file", "policy",       "resources",   "unmatched",    "allow_commands",  "guard",
    "pooled",        "comment_tags", "cut_timeout", "timeouts",     "connections_max", "routes",
    "store",         "token_header", "seal",        "hold_grace",   "answer_timeout",  "body_max",
    "body_held_max", "access_log",   "keep_alive",  "body_timeout", "request_timeout", "response_timeout",
    "share_writes"};
inline constexpr std::array<std::string_view, 5> policy{"mode", "missing_token", "equal_token", "reads", "max_step"};
inline constexpr std::array<std::string_view, 3> rule{"keys", "resource", "policy"};
inline constexpr std::array<std::string_view, 6> tls{
    "cert", "key", "client_ca", "client_crl", "client_certificate", "client_name"};
inline constexpr std::array<std::string_view, 4> timeouts{"connect", "head", "idle", "write"};
inline constexpr std::array<std::string_view, 8> route{"match",  "resource",  "redis", "sql",
                                                       "params", "guarantee", "store", "policy"};
}  // namespace keys

struct key_group {
  std::string_view path;  // of the section: "gates[].policy." has the key "gates[].policy.mode"
  std::span<const std::string_view> keys;
};

// "*" stands for a name that the operator chooses.
inline constexpr std::array<key_group, 17> key_groups{{{"", keys::process},
                                                       {"admin.", keys::admin},
                                                       {"admin.tls.", keys::tls},
                                                       {"log.", keys::log},
                                                       {"stores.*.", keys::store},
                                                       {"leases.", keys::leases},
                                                       {"leases.issuers.*.", keys::lease_issuer},
                                                       {"leases.resources[].", keys::lease_rule},
                                                       {"leases.writers.*.", keys::lease_writer},
                                                       {"gates[].", keys::gate},
                                                       {"gates[].tls.", keys::tls},
                                                       {"gates[].policy.", keys::policy},
                                                       {"gates[].resources[].", keys::rule},
                                                       {"gates[].resources[].policy.", keys::policy},
                                                       {"gates[].timeouts.", keys::timeouts},
                                                       {"gates[].routes[].", keys::route},
                                                       {"gates[].routes[].policy.", keys::policy}}};

// A word of the configuration and what it means.
template <class Enum>
struct word {
  std::string_view name;
  Enum value;
};

enum class protocol : std::uint8_t { redis, postgres, http };

namespace words {
inline constexpr std::array<word<settings::log_level>, 4> level{{{"debug", settings::log_level::debug},
                                                                 {"info", settings::log_level::info},
                                                                 {"warn", settings::log_level::warn},
                                                                 {"error", settings::log_level::error}}};
inline constexpr std::array<word<settings::log_format>, 2> format{
    {{"json", settings::log_format::json}, {"text", settings::log_format::text}}};
inline constexpr std::array<word<protocol>, 3> protocols{
    {{"redis", protocol::redis}, {"postgres", protocol::postgres}, {"http", protocol::http}}};
inline constexpr std::array<word<fence::enforcement>, 2> mode{
    {{"enforce", fence::enforcement::enforce}, {"monitor", fence::enforcement::monitor}}};
inline constexpr std::array<word<fence::missing_token>, 3> missing_token{
    {{"reject", fence::missing_token::reject},
     {"read_only", fence::missing_token::read_only},
     {"allow", fence::missing_token::allow}}};
inline constexpr std::array<word<fence::equal_token>, 2> equal_token{
    {{"accept", fence::equal_token::accept}, {"reject", fence::equal_token::reject}}};
inline constexpr std::array<word<fence::reads>, 2> reads{
    {{"pass", fence::reads::pass}, {"fence", fence::reads::fence}}};
inline constexpr std::array<word<fence::unmatched>, 3> unmatched{
    {{"tag", fence::unmatched::tag}, {"pass", fence::unmatched::pass}, {"reject", fence::unmatched::reject}}};
inline constexpr std::array<word<settings::sharing>, 3> share_writes{
    {{"auto", settings::sharing::pays}, {"always", settings::sharing::always}, {"off", settings::sharing::off}}};
inline constexpr std::array<word<bool>, 1> tag_from{{{"listen", true}}};
inline constexpr std::array<word<bool>, 2> on_loss{{{"restart", false}, {"rebind", true}}};
inline constexpr std::array<word<bool>, 2> client_certificate{{{"required", true}, {"optional", false}}};
inline constexpr std::array<word<bool>, 2> standby{{{"refuse", false}, {"wait", true}}};
inline constexpr std::array<word<settings::http_unmatched>, 2> http_unmatched{
    {{"reject", settings::http_unmatched::reject}, {"pass", settings::http_unmatched::pass}}};
inline constexpr std::array<word<settings::http_seal>, 3> seal{
    {{"gate", settings::http_seal::gate}, {"admin", settings::http_seal::admin}, {"off", settings::http_seal::off}}};
inline constexpr std::array<word<settings::http_guarantee>, 2> guarantee{
    {{"held", settings::http_guarantee::held}, {"checked", settings::http_guarantee::checked}}};
inline constexpr std::array<word<settings::guard>, 2> guard{
    {{"session", settings::guard::session}, {"transaction", settings::guard::transaction}}};
inline constexpr std::array<word<bool>, 2> yes_or_no{{{"true", true}, {"false", false}}};
inline constexpr std::array<word<settings::comment_tags>, 2> comment_tags{
    {{"off", settings::comment_tags::off}, {"lead", settings::comment_tags::lead}}};
}  // namespace words

// Keys of a gate that not every protocol has; one that two have stands here twice.
inline constexpr std::array<word<protocol>, 22> keys_of_one_protocol{{{"resources", protocol::redis},
                                                                      {"unmatched", protocol::redis},
                                                                      {"allow_commands", protocol::redis},
                                                                      {"share_writes", protocol::redis},
                                                                      {"guard", protocol::postgres},
                                                                      {"pooled", protocol::postgres},
                                                                      {"comment_tags", protocol::postgres},
                                                                      {"cut_timeout", protocol::postgres},
                                                                      {"routes", protocol::http},
                                                                      {"unmatched", protocol::http},
                                                                      {"store", protocol::http},
                                                                      {"token_header", protocol::http},
                                                                      {"seal", protocol::http},
                                                                      {"hold_grace", protocol::http},
                                                                      {"answer_timeout", protocol::http},
                                                                      {"body_max", protocol::http},
                                                                      {"body_held_max", protocol::http},
                                                                      {"access_log", protocol::http},
                                                                      {"keep_alive", protocol::http},
                                                                      {"body_timeout", protocol::http},
                                                                      {"request_timeout", protocol::http},
                                                                      {"response_timeout", protocol::http}}};

}  // namespace fencegate::cli
