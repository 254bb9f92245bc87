// The beginning of a session: opening packet and authentication.
#include "gate/postgres/pg_engine.hpp"

#include "base/limits.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace fencegate::gate {
namespace {

using fence::reason;

bool asks_for_replication(const wire::pg_opening& opening) {
  const auto value = opening.parameter("replication");
  if (!value) return false;
  constexpr std::array<std::string_view, 6> off{"", "0", "f", "false", "n", "no"};
  return std::find(off.begin(), off.end(), *value) == off.end() && *value != "off";
}

}  // namespace

pg_engine::pg_engine(pg_host& host, const settings::postgres_gate& gate, metrics::gate& stats)
    : pg_engine(host, gate, stats, gate.tag) {}

pg_engine::pg_engine(pg_host& host, const settings::postgres_gate& gate, metrics::gate& stats, const claims_list& tag)
    : host_(host), gate_(gate), stats_(stats), tag_(tag) {}

bool pg_engine::blocked() const {
  return phase_ == phase::connecting || phase_ == phase::cancelling || phase_ == phase::arming ||
         phase_ == phase::raising || phase_ == phase::looking || phase_ == phase::diagnosing ||
         (phase_ == phase::starting && authenticated_) || awaits_too_much() || waits_for_boundary_;
}

bool pg_engine::at_rest() const {
  return phase_ == phase::relaying && at_boundary() && client_passing_ == 0 && backend_passing_ == 0 &&
         swallowed_ == 0 && from_client.empty() && from_backend.empty();
}

bool pg_engine::is_quiet() const {
  return (guarded_ ? guarded_->idle() : flight_.idle() && flight_.certain()) && client_passing_ == 0;
}

bool pg_engine::at_boundary() const {
  return guarded_ ? guarded_->idle() && guarded_->status() == 'I' : flight_.at_boundary();
}

bool pg_engine::awaits_too_much() const {
  return (guarded_ ? guarded_->size() : flight_.size()) > limits::replies_awaited_max;
}

void pg_engine::resume() {
  if (std::exchange(stepping_, true)) return;
  for (bool moved = true; moved;) {
    moved = false;
    switch (phase_) {
      case phase::opening: moved = step_opening(); break;
      case phase::starting: moved = step_starting_client(); break;
      case phase::relaying: moved = step_client(); break;
      default: break;
    }
  }
  stepping_ = false;
  if (parting()) step_parting();
}

void pg_engine::on_backend_bytes() {
  if (std::exchange(stepping_, true)) return;
  for (bool moved = true; moved;) {
    moved = false;
    switch (phase_) {
      case phase::starting: moved = step_starting_backend(); break;
      case phase::arming: moved = step_arming(); break;
      case phase::relaying: moved = step_backend(); break;
      default: break;
    }
  }
  stepping_ = false;
  resume();
  if (draining_) drain();
}

// ── opening ─────────────────────────────────────────────────────────────────────────────────────────────────────────

bool pg_engine::step_opening() {
  const auto decoded = wire::decode_pg_opening(from_client.view());
  if (!decoded) {
    protocol_error(metrics::side::client, decoded.error().message);
    return false;
  }
  if (!*decoded) return false;
  const auto& opening = **decoded;
  using kind = wire::pg_opening::kind;
  switch (opening.what) {
    case kind::ssl:
    case kind::gss:
      // Its listener has no TLS. It says so as servers do; a client that insists gives up by itself.
      if (++encryption_asked_ > encryption_asked_most) {
        protocol_error(metrics::side::client, "encryption was asked for again and again");
        return false;
      }
      to_client += 'N';
      from_client.consume(opening.bytes);
      return true;
    case kind::cancel:
      cancels_ = true;
      first_packet_ = from_client.view().substr(0, opening.bytes);
      from_client.consume(opening.bytes);
      phase_ = phase::connecting;
      host_.connect(opening.session);
      return false;
    case kind::start: open(opening); return false;
  }
  return false;
}

void pg_engine::open(const wire::pg_opening& opening) {
  first_packet_ = from_client.view().substr(0, opening.bytes);
  from_client.consume(opening.bytes);
  const auto refuse = [this](const fence::rejection& why) {
    host_.report(why, "startup", !enforces());
    if (enforces()) close_with(pg_error_of(why, "FATAL"));
    return enforces();
  };
  brought_name_ = brings_name(opening);
  auto claims = claims_of(opening);
  if (const auto other = claims ? fence::disagreement(tag_, *claims) : std::nullopt)
    claims = error{*other};
  else if (claims && !tag_.empty())
    claims = tag_;
  if (!claims) {
    if (refuse({reason::malformed, {}, {}, {}, claims.error().message})) return;
    claims = claims_list{};
  }
  if (asks_for_replication(opening) && !claims->empty()) {
    const char* why = "a replication connection outlives and escapes a session's fence: connect to the server itself";
    if (refuse(about_single({reason::refused, {}, {}, {}, why}, *claims))) return;
    claims = claims_list{};
  }
  if (claims->empty() && gate_.policy.missing == fence::missing_token::reject) {
    if (refuse({reason::missing, {}, {}, {}, "this connection brings none", fence::attempt::connection})) return;
  }
  const auto user = opening.parameter("user"), database = opening.parameter("database");
  database_ = database && !database->empty() ? *database : user.value_or("");
  if (enforces())
    if (const auto stale = refused_by_memory(*claims)) {
      refuse(*stale);
      return;
    }
  if (const auto full = host_.take_room(*claims)) return close_with(pg_error_of_limit(*full));
  if (claims->empty() && gate_.policy.missing == fence::missing_token::read_only && enforces()) {
    auto parameters = opening.parameters;
    parameters.emplace_back("default_transaction_read_only", "on");
    first_packet_ = wire::encode_pg_start(opening.version, parameters);
  }
  if (gate_.kept_by == settings::guard::transaction) {
    // A pooler refuses start-up options that it does not know; it is the gate that reads this one.
    auto parameters = opening.parameters;
    std::erase_if(parameters, [](auto& p) {
      if (p.first == "options") p.second = wire::pg_options_without(p.second, tokens_setting);
      return p.first == tokens_setting ||
             (p.first == "options" && p.second.find_first_not_of(' ') == std::string::npos);
    });
    first_packet_ = wire::encode_pg_start(opening.version, parameters);
  }
  arming_for_ = std::move(*claims);
  phase_ = phase::connecting;
  host_.connect({});
}

void pg_engine::on_connected() {
  if (phase_ != phase::connecting) return;
  to_backend += first_packet_;
  std::string().swap(first_packet_);
  phase_ = cancels_ ? phase::cancelling : phase::starting;
}

void pg_engine::on_unreachable(std::string_view why) {
  if (phase_ != phase::connecting) return;
  if (cancels_) {
    phase_ = phase::closing;
    return;
  }
  close_with({"FATAL",
              "08006",
              "the PostgreSQL server behind this gate cannot be reached: " + std::string(why),
              {},
              "Try again later."});
}

// ── authentication ──────────────────────────────────────────────────────────────────────────────────────────────────

// Until the client is authenticated, nothing but its answers to the server's questions goes on. A client that expects no
// question may have sent more already: that waits.
bool pg_engine::step_starting_client() {
  if (authenticated_) return false;
  const auto head = wire::decode_pg_head(from_client.view());
  const bool answers = head && *head && (*head)->type == 'p';
  if (!head || (answers && (*head)->body_bytes > limits::pg_authentication_bytes_max)) {
    protocol_error(metrics::side::client, head ? "an authentication message is too long" : head.error().message);
    return false;
  }
  if (*head && (*head)->type == 'X') {
    phase_ = phase::closing;
    return false;
  }
  if (!answers || from_client.size() < wire::pg_head_bytes + (*head)->body_bytes) return false;
  const std::size_t bytes = wire::pg_head_bytes + (*head)->body_bytes;
  to_backend += from_client.view().substr(0, bytes);
  from_client.consume(bytes);
  return true;
}

std::optional<std::string> pg_engine::take_from_backend() {
  const auto head = wire::decode_pg_head(from_backend.view());
  if (!head || (*head && (*head)->body_bytes > limits::pg_inspected_bytes_max)) {
    protocol_error(metrics::side::backend, head ? "a message is too long" : head.error().message);
    return std::nullopt;
  }
  if (!*head || from_backend.size() < wire::pg_head_bytes + (*head)->body_bytes) return std::nullopt;
  const std::size_t bytes = wire::pg_head_bytes + (*head)->body_bytes;
  std::string message(from_backend.view().substr(0, bytes));
  from_backend.consume(bytes);
  return message;
}

bool pg_engine::step_starting_backend() {
  auto message = take_from_backend();
  if (!message) return false;
  const auto body = std::string_view(*message).substr(wire::pg_head_bytes);
  switch (message->front()) {
    case 'R':
      if (body == std::string_view("\0\0\0\0", 4)) authenticated_ = true;
      // The client could not bind to TLS that ends here, where the server shows another certificate.
      if (const auto left = wire::without_sasl_mechanism(body, "SCRAM-SHA-256-PLUS");
          left && !host_.shows_servers_certificate())
        message = wire::encode_pg_message('R', *left);
      break;
    case 'K':
      if (body.size() >= 4) {
        std::uint32_t pid = 0;
        for (std::size_t i = 0; i < 4; ++i) pid = pid << 8 | static_cast<unsigned char>(body[i]);
        pid_ = static_cast<std::int32_t>(pid);
        host_.has_key(std::string(body));
      }
      break;
    case 'S':
      if (const auto both = wire::decode_pg_strings(body, 2)) {
        if ((*both)[0] == "application_name") application_name_ = (*both)[1];
        if ((*both)[0] == "client_encoding") client_encoding_ = (*both)[1];
        if ((*both)[0] == "standard_conforming_strings") conforming_strings_ = (*both)[1];
        if ((*both)[0] == "in_hot_standby") on_standby_ = (*both)[1] == "on";
        if ((*both)[0] == "is_superuser") superuser_ = (*both)[1] == "on";
      }
      break;
    case 'E':
      if (const auto e = wire::decode_pg_error(body); !e) {
        protocol_error(metrics::side::backend, e.error().message);
        return false;
      }
      fatal_seen_ = true;
      break;
    case 'N':
    case 'v': break;
    case 'Z': on_first_ready(*message); return true;
    default: protocol_error(metrics::side::backend, "an unexpected message during authentication"); return false;
  }
  to_client += *message;
  return true;
}

void pg_engine::on_first_ready(std::string_view message) {
  const auto status = wire::decode_pg_ready(message.substr(wire::pg_head_bytes));
  if (!authenticated_ || !status || *status != 'I')
    return protocol_error(metrics::side::backend, "the session does not begin outside a transaction");
  if (!brought_name_ && gate_.kept_by == settings::guard::session && !joins_tag_of_name()) return;
  held_ready_ = message;
  if (arming_for_.empty() && on_standby_) {
    reject({reason::unavailable,
            {},
            {},
            {},
            "this server is a hot standby, and a session without a token would outlive its promotion"},
           "startup");
    if (closing()) return;
  }
  if (arming_for_.empty()) return serve();
  if (!enforces()) return watch_only(std::exchange(arming_for_, {}));
  begin_arming(std::move(arming_for_));
}

// The client may go on.
void pg_engine::serve() {
  to_client += held_ready_;
  std::string().swap(held_ready_);
  phase_ = phase::relaying;
  if (guards()) begin_guarding();
  if (draining_) drain();
}

}  // namespace fencegate::gate
