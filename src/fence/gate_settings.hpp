// Settings of the gates, as validated structs.
#pragma once

#include "base/settings.hpp"
#include "fence/policy.hpp"
#include "fence/resource_rules.hpp"
#include "fence/tag.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::settings {

// The gate's own user on the backend; clients authenticate for themselves.
struct credentials {
  std::string user;  // "" = the default user
  secret password;   // none = do not authenticate

  friend bool operator==(const credentials&, const credentials&) = default;
};

// TLS to a server of any protocol, as libpq means it (https://www.postgresql.org/docs/15/libpq-ssl.html).
struct tls {
  // How a URL names its files.
  struct words {
    std::string_view authorities, certificate, key, revoked;
    friend bool operator==(const words&, const words&) = default;
  };
  static constexpr words of_libpq{"sslrootcert", "sslcert", "sslkey", "sslcrl"},
      of_others{"cafile", "cert", "key", "crlfile"};
  enum class check : std::uint8_t {
    none,       // no TLS at all
    nothing,    // sslmode=require: what is sent is encrypted, for whoever has answered
    authority,  // sslmode=verify-ca: it has a certificate of these authorities
    name        // sslmode=verify-full: and the certificate is for the host that was asked for
  } checks = check::none;
  std::string authorities;  // path of a PEM file; "" unless the certificate is checked
  std::string certificate;  // the gate's own, and its key: paths of PEM files; "" = none
  std::string key;
  std::string revoked;  // path of a PEM file with revocation lists of the authorities; "" = none is looked at
  words called = of_libpq;

  [[nodiscard]] bool wanted() const { return checks != check::none; }

  friend bool operator==(const tls&, const tls&) = default;
};

// TLS of a listener.
struct listener_tls {
  std::string certificate;      // path of a PEM file, with the authorities between it and the root; "" = no TLS
  std::string key;              // the same
  std::string client_ca;        // the same; "": clients show no certificate
  std::string client_crl;       // path of a PEM file with revocation lists of client_ca; "" = none is looked at
  bool client_required = true;  // where there are client_ca
  std::vector<std::string> client_name;  // a client's certificate has one of these; empty: any will do

  [[nodiscard]] bool wanted() const { return !certificate.empty(); }

  friend bool operator==(const listener_tls&, const listener_tls&) = default;
};

struct timeouts {
  std::chrono::milliseconds connect{5'000};  // to the backend; never 0
  std::chrono::milliseconds head{10'000};    // from accept, or from its first byte, to a whole command's head; 0 = none
  std::chrono::milliseconds idle{0};         // a client that sends nothing and waits for nothing; 0 = none
  std::chrono::milliseconds write{60'000};   // a peer that takes no byte of what waits for it; 0 = none

  friend bool operator==(const timeouts&, const timeouts&) = default;
};

// A gate that holds the lease for its clients: each connection is bound to the grant that is held when it is accepted.
struct gate_lease {
  std::vector<std::string> resources;  // all or none; empty: it holds no lease
  std::string writer = "default";      // who is behind the gate; gates of one writer hold their leases together
  bool rebinds = false;                // on_loss: rebind; else restart
  bool waits = false;                  // standby: wait; else refuse
  std::chrono::milliseconds standby_wait{20'000};  // standby: wait: so long a connection is held unanswered

  [[nodiscard]] bool wanted() const { return !resources.empty(); }

  friend bool operator==(const gate_lease&, const gate_lease&) = default;
};

// Small writes of connections of one user.
enum class sharing : std::uint8_t {
  off,     // each goes over its connection's own link
  pays,    // they go over one link while that serves them better
  always,  // they go over one link
};

struct redis_gate {
  std::string name;
  address listen;
  listener_tls shown;
  std::vector<fence::claim>
      tag;  // tag_from: listen: what all its connections are bound to; empty: they bring their own
  gate_lease leased;
  address upstream;
  tls secured;          // from the upstream URL: to the server, for clients' links and the gate's own
  credentials control;  // from the upstream URL
  fence::policy policy = fence::policy_of_gates;
  std::vector<fence::key_rule> resources;
  fence::unmatched unmatched = fence::unmatched::tag;
  sharing share_writes = sharing::pays;     // of one thread, with the same user and database
  std::vector<std::string> allow_commands;  // lower case, "flushall" or "config|set": not refused
  timeouts limits_time;
  std::size_t connections_max = 10'000;  // clients at the same time; what comes on top is closed at once

  friend bool operator==(const redis_gate&, const redis_gate&) = default;
};

// How a PostgreSQL gate keeps the rule.
enum class guard : std::uint8_t {
  session,     // a session is bound to its token, and ended by the server when the mark rises above it
  transaction  // every transaction begins with a check that holds until its end: for servers behind a transaction pooler
};

// Where SQL may carry a tag.
enum class comment_tags : std::uint8_t {
  off,  // nowhere: no text is searched for one
  lead  // in the very first comment of a message, before any other token
};

struct postgres_gate {
  std::string name;
  address listen;
  listener_tls shown;
  std::vector<fence::claim>
      tag;  // tag_from: listen: what all its connections are bound to; empty: they bring their own
  gate_lease leased;
  address upstream;              // a unix socket's path is that of the socket itself, "/…/.s.PGSQL.5432"
  tls secured;                   // from the upstream URL: to the server, for clients' links and the gate's own
  credentials control;           // from the upstream URL: for the gate's own connections
  std::string control_database;  // where the gate's own connection looks after the server; marks live in each database
  fence::policy policy = fence::policy_of_gates;  // equal is always `accept`, read always `pass`
  guard kept_by = guard::session;
  bool pooled = true;  // guard: transaction: a pooler may be in between
  comment_tags tags_in_sql = comment_tags::off;
  std::chrono::milliseconds cut_timeout{5'000};  // how long a raise waits for older sessions to end
  timeouts limits_time;
  std::size_t connections_max = 10'000;  // clients at the same time; what comes on top is closed at once

  friend bool operator==(const postgres_gate&, const postgres_gate&) = default;
};

// Whether the mark stays where it is while an HTTP request is forwarded.
enum class http_guarantee : std::uint8_t {
  held,    // a session in PostgreSQL holds it until the response has ended; raises wait for that, or cut it
  checked  // the token is compared, then the request goes on: the window is narrow, and open
};

// Writes that match no route.
enum class http_unmatched : std::uint8_t { reject, pass };

// Where a mark can be read and raised by request, without a write.
enum class http_seal : std::uint8_t {
  gate,   // where its clients connect
  admin,  // at the admin listener, by peers on loopback
  off
};

enum class http_action : std::uint8_t { forward, redis, sql };

struct http_route {
  std::vector<std::string> methods;  // upper case; empty = any that writes
  std::string pattern;               // "/orders/{id}", "/files/{path...}"
  std::string resource;              // a template of the pattern's names: "order:{id}"
  http_action does = http_action::forward;
  http_guarantee guarantee = http_guarantee::checked;  // forward only
  std::vector<std::string> command;                    // redis: a template for each word
  std::string statement;                               // sql: its text, with $1 and so on
  std::vector<std::string> parameters;                 // sql: a template for each
  std::string store;                                   // the name of its store; never empty
  fence::policy policy;

  friend bool operator==(const http_route&, const http_route&) = default;
};

// A database that keeps marks for HTTP gates.
struct mark_store {
  enum class kind : std::uint8_t { redis, postgres } speaks = kind::redis;
  std::string name;
  address where;  // a unix socket's path is that of the socket itself
  credentials login;
  std::string database;  // postgres only
  tls secured;
  std::size_t pool = 10;  // postgres only: connections at the same time, of all threads together; at least 2
  std::chrono::milliseconds connect{5'000};

  friend bool operator==(const mark_store&, const mark_store&) = default;
};

struct http_gate {
  std::string name;
  address listen;
  listener_tls shown;
  std::vector<fence::claim>
      tag;  // tag_from: listen: what all its connections are bound to; empty: they bring their own
  gate_lease leased;
  std::optional<address> upstream;  // nullopt: no route forwards, and what matches none is rejected
  tls secured;                      // from the upstream URL
  std::vector<mark_store> stores;   // those that its routes use; the gate's own is the first
  std::vector<http_route> routes;
  fence::policy policy = fence::policy_of_gates;
  http_unmatched unmatched = http_unmatched::reject;
  http_seal seal = http_seal::gate;
  std::string token_header = "Fencing-Token";
  std::chrono::milliseconds hold_grace{5'000};  // how long a raise waits for forwards that hold the mark; then it cuts
  std::chrono::milliseconds answer_timeout{10'000};  // for marks and statements: how long a request waits for its store
  std::uint64_t access_log_every = 0;                // one request in so many has a line in the log; 0 = none
  std::uint64_t body_bytes_max = 0;                  // of forwards; 0 = no limit
  std::size_t body_held_bytes_max = 1024 * 1024;     // of routes with redis or sql, whose bodies are held whole
  std::chrono::milliseconds keep_alive{75'000};      // a client that sends no next request; 0 = none
  std::chrono::milliseconds body_timeout{30'000};    // a client that sends nothing of a body it owes; 0 = none
  std::chrono::milliseconds request_timeout{60'000};   // for a whole body, where it is held or marks are; 0 = none
  std::chrono::milliseconds response_timeout{60'000};  // an upstream that is silent while it owes an answer; 0 = none
  timeouts limits_time;
  std::size_t connections_max = 10'000;  // clients at the same time; what comes on top is closed at once

  friend bool operator==(const http_gate&, const http_gate&) = default;
};

// Leases that the process takes, or grants to others.
struct lease_issuer {
  std::string name;
  std::string store;  // the name of a store

  friend bool operator==(const lease_issuer&, const lease_issuer&) = default;
};

// What holds for some resources; the first rule that matches a name counts.
struct lease_rule {
  fence::key_rule match;
  std::string issuer;                       // a name
  std::chrono::milliseconds lock_delay{0};  // behind an expiry, until another may have the lease
  std::vector<std::string> seal;            // "gate:cache", "store:ledger"; empty: all of the configuration

  friend bool operator==(const lease_rule&, const lease_rule&) = default;
};

// Who is behind gates that hold its lease.
struct lease_writer {
  std::string name;
  std::vector<std::string> containers;               // all must have started anew behind a loss; empty: it is one
  std::chrono::milliseconds writer_timeout{30'000};  // without a probe, where probes came: the lease is released

  friend bool operator==(const lease_writer&, const lease_writer&) = default;
};

struct leases {
  std::vector<address> listen;        // of the API: unix sockets, and ports on loopback; empty: there is none
  unsigned socket_mode = 0660;        // of the files of its unix sockets
  std::vector<lease_issuer> issuers;  // empty: there are no leases
  std::string issuer;                 // of what no rule names
  std::chrono::milliseconds ttl{30'000};
  std::optional<std::chrono::milliseconds> margin, skew, round_trip, stop_grace;  // nullopt: by the TTL
  std::int64_t stride = 1 << 20;
  std::vector<lease_rule> resources;
  std::string state_dir;              // of the terms that gates hold; "": they are not kept
  std::vector<lease_writer> writers;  // of the gates with a lease; those that the configuration does not describe, too
  std::optional<address> probes;      // for httpGet probes of the writers

  friend bool operator==(const leases&, const leases&) = default;
};

struct process {
  std::optional<std::int64_t> threads;       // 0 = one per core; nullopt: by itself
  std::optional<std::int64_t> busy_poll_us;  // how long a thread looks for work before it sleeps; nullopt: by itself
  bool strict = false;                       // does not start while there are hazards (backend/hazards.hpp)
  address admin{"127.0.0.1", 9180, {}};
  bool admin_enabled = false;  // the configuration has a section `admin`
  listener_tls admin_shown;
  log_level level = log_level::info;
  log_format format = log_format::json;
  std::chrono::milliseconds drain_timeout{25'000};  // from SIGTERM to the hard stop; 0 = stop at once
  std::vector<store> stores;                        // validated; those that no gate uses, too
  leases leased;
  std::vector<redis_gate> redis_gates;
  std::vector<postgres_gate> postgres_gates;
  std::vector<http_gate> http_gates;
  std::vector<std::string> warnings;  // of what may not do what was meant, with its place in the file
};

}  // namespace fencegate::settings
