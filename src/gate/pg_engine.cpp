// The beginning of a session: opening packet, authentication, arming; and its end.
#include "gate/pg_engine.hpp"

#include "base/limits.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace fencegate::gate {
namespace {

using fence::reason;
using std::chrono::milliseconds;

// Arming may wait as long as a raise does; this is for the way there and back, and for a server that hangs.
constexpr milliseconds arming_allowance{10'000};

bool asks_for_replication(const wire::pg_opening& opening) {
  const auto value = opening.parameter("replication");
  if (!value) return false;
  constexpr std::array<std::string_view, 6> off{"", "0", "f", "false", "n", "no"};
  return std::find(off.begin(), off.end(), *value) == off.end() && *value != "off";
}

}  // namespace

pg_engine::pg_engine(pg_host& host, const settings::postgres_gate& gate, metrics::gate& figures)
    : host_(host), gate_(gate), figures_(figures) {}

bool pg_engine::blocked() const {
  return phase_ == phase::connecting || phase_ == phase::cancelling || phase_ == phase::arming ||
         phase_ == phase::raising || phase_ == phase::looking || phase_ == phase::judging ||
         (phase_ == phase::starting && authenticated_) || flight_.size() > limits::replies_awaited_max ||
         waits_for_boundary_;
}

bool pg_engine::at_rest() const {
  return phase_ == phase::relaying && flight_.at_boundary() && client_passing_ == 0 && backend_passing_ == 0 &&
         large_ == nullptr && swallowed_ == 0 && from_client.empty() && from_backend.empty();
}

void pg_engine::resume() {
  for (bool moved = true; moved;) {
    moved = false;
    switch (phase_) {
      case phase::opening: moved = step_opening(); break;
      case phase::starting: moved = step_starting_client(); break;
      case phase::relaying: moved = step_client(); break;
      default: break;
    }
  }
}

void pg_engine::on_backend_bytes() {
  for (bool moved = true; moved;) {
    moved = false;
    switch (phase_) {
      case phase::starting: moved = step_starting_backend(); break;
      case phase::arming: moved = step_arming(); break;
      case phase::relaying: moved = step_backend(); break;
      default: break;
    }
  }
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
      // The gate is on the client's own loopback. It says so as servers do; a client that insists gives up by itself.
      if (++encryption_asked_ > 2) {
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
      host_.connect();
      return false;
    case kind::start: open(opening); return false;
  }
  return false;
}

void pg_engine::open(const wire::pg_opening& opening) {
  first_packet_ = from_client.view().substr(0, opening.bytes);
  from_client.consume(opening.bytes);
  const auto refuse = [this](fence::rejection why) {
    host_.report(why, "startup", !enforces());
    if (enforces()) close_with(pg_error_of(why, "FATAL"));
    return enforces();
  };
  auto claims = claims_of(opening);
  if (!claims) {
    if (refuse({reason::malformed, {}, {}, {}, claims.error().message})) return;
    claims = claims_list{};
  }
  if (asks_for_replication(opening) && !claims->empty()) {
    const char* why = "a replication connection outlives and escapes a session's fence: connect to the server itself";
    if (refuse({reason::refused, {}, {}, {}, why})) return;
    claims = claims_list{};
  }
  if (claims->empty() && gate_.policy.missing == fence::missing_token::reject) {
    if (refuse({reason::missing, {}, {}, {}, {}})) return;
  }
  const auto user = opening.parameter("user"), database = opening.parameter("database");
  database_ = database && !database->empty() ? *database : user.value_or("");
  if (enforces())
    if (const auto stale = refused_by_memory(*claims)) {
      refuse(*stale);
      return;
    }
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
  host_.connect();
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

bool pg_engine::step_starting_backend() {
  const auto head = wire::decode_pg_head(from_backend.view());
  if (!head || (*head && (*head)->body_bytes > limits::pg_inspected_bytes_max)) {
    protocol_error(metrics::side::backend, head ? "a message is too long" : head.error().message);
    return false;
  }
  if (!*head || from_backend.size() < wire::pg_head_bytes + (*head)->body_bytes) return false;
  const std::size_t bytes = wire::pg_head_bytes + (*head)->body_bytes;
  const std::string message(from_backend.view().substr(0, bytes));
  const auto body = std::string_view(message).substr(wire::pg_head_bytes);
  from_backend.consume(bytes);
  switch ((*head)->type) {
    case 'R':
      if (body == std::string_view("\0\0\0\0", 4)) authenticated_ = true;
      break;
    case 'K':
      if (body.size() >= 4) {
        std::uint32_t pid = 0;
        for (std::size_t i = 0; i < 4; ++i) pid = pid << 8 | static_cast<unsigned char>(body[i]);
        pid_ = static_cast<std::int32_t>(pid);
      }
      break;
    case 'S':
      if (const auto both = wire::decode_pg_strings(body, 2)) {
        if ((*both)[0] == "application_name") application_name_ = (*both)[1];
        if ((*both)[0] == "client_encoding") client_encoding_ = (*both)[1];
        if ((*both)[0] == "in_hot_standby") on_standby_ = (*both)[1] == "on";
      }
      break;
    case 'E': fatal_seen_ = true; break;
    case 'N':
    case 'v': break;
    case 'Z': on_first_ready(message); return true;
    default: protocol_error(metrics::side::backend, "an unexpected message during authentication"); return false;
  }
  to_client += message;
  return true;
}

void pg_engine::on_first_ready(std::string_view message) {
  const auto status = wire::decode_pg_ready(message.substr(wire::pg_head_bytes));
  if (!authenticated_ || !status || *status != 'I')
    return protocol_error(metrics::side::backend, "the session does not begin outside a transaction");
  held_ready_ = message;
  if (arming_for_.empty() && on_standby_ && enforces())
    return reject({reason::unavailable,
                   {},
                   {},
                   {},
                   "this server is a hot standby, and a session without a token would outlive its promotion"},
                  "startup");
  if (arming_for_.empty()) return serve();
  if (!enforces()) return watch_only(std::exchange(arming_for_, {}));
  begin_arming(std::move(arming_for_));
}

// The client may go on.
void pg_engine::serve() {
  to_client += held_ready_;
  std::string().swap(held_ready_);
  phase_ = phase::relaying;
  if (draining_) drain();
}

// ── arming ──────────────────────────────────────────────────────────────────────────────────────────────────────────

std::optional<fence::rejection> pg_engine::refused_by_memory(const claims_list& claims) {
  for (const auto& c : claims) {
    const auto seen = host_.seen(database_, c.resource);
    if (seen && c.presented < *seen) return fence::rejection{reason::stale, c.resource, c.presented, *seen, {}};
  }
  return std::nullopt;
}

void pg_engine::begin_arming(claims_list claims) {
  arming_for_ = std::move(claims);
  arm_ = arm_reading(arming_for_);
  arm_sent_ = host_.now();
  phase_ = phase::arming;
  if (const auto stale = refused_by_memory(arming_for_)) return on_arming_failed(*stale);
  if (gate_.kept_by == settings::guard::transaction) return begin_raising();
  to_backend += arm_query(arming_for_, gate_.cut_timeout, gate_.policy.max_step);
  host_.set_timer(gate_.cut_timeout + arming_allowance);
}

bool pg_engine::step_arming() {
  const auto head = wire::decode_pg_head(from_backend.view());
  if (!head || (*head && (*head)->body_bytes > limits::pg_inspected_bytes_max)) {
    protocol_error(metrics::side::backend, head ? "a message is too long" : head.error().message);
    return false;
  }
  if (!*head || from_backend.size() < wire::pg_head_bytes + (*head)->body_bytes) return false;
  const std::size_t bytes = wire::pg_head_bytes + (*head)->body_bytes;
  const std::string message(from_backend.view().substr(0, bytes));
  from_backend.consume(bytes);
  const char type = (*head)->type;
  if (type == 'S' || type == 'A') {
    to_client += message;  // may come at any time, and belongs to the client
    return true;
  }
  if (type == 'N' || !arm_.take(type, std::string_view(message).substr(wire::pg_head_bytes))) return true;
  const auto outcome = arm_.judge();
  figures_.check_duration_seconds.observe(host_.now() - arm_sent_);
  if (!outcome.armed) {
    on_arming_failed(outcome.why);
    return true;
  }
  on_armed(outcome.raised, outcome.cut);
  return true;
}

void pg_engine::on_armed(bool raised, std::uint64_t cut) {
  figures_.checks(raised ? metrics::check_outcome::raised : metrics::check_outcome::admitted).add();
  if (raised) {
    figures_.raises_total.add();
    figures_.takeover_seconds.observe(host_.now() - arm_sent_);
  }
  figures_.sessions_cut_total.add(cut);
  for (const auto& c : arming_for_) host_.saw(database_, c.resource, c.presented);
  bind_claims(bound_, arming_for_);
  if (held_ready_.empty())
    phase_ = phase::relaying;
  else
    serve();
}

// guard: transaction: there is no session to arm. The marks rise at once, on a connection of the gate's own; each
// transaction then proves that they are still there.
void pg_engine::begin_raising() {
  phase_ = phase::raising;
  host_.raise(database_, arming_for_, [this](const std::optional<wire::pg_error>& failed) {
    if (phase_ != phase::raising) return;
    if (failed)
      on_arming_failed(rejection_of(*failed, arming_for_));
    else
      on_armed(false, 0);
    resume();
  });
}

// In front of a statement only this statement fails, if the session is still what it was; else the connection ends.
void pg_engine::on_arming_failed(const fence::rejection& why) {
  if (why.mark && why.why == reason::stale && fence::is_resource_name(why.resource))
    host_.saw(database_, why.resource, *why.mark);
  if (held_ready_.empty() && !backend_ended_ && arm_.left_session_idle()) {
    statement_refused_ = why;
    phase_ = phase::relaying;
    return;
  }
  host_.report(why, "startup", false);
  close_with(pg_error_of(why, "FATAL"));
}

// Monitor: what would have been rejected is said, nothing is raised (a raise ends sessions).
void pg_engine::watch_only(const claims_list& claims) {
  phase_ = phase::looking;
  host_.look(database_, claims, [this, claims](const std::optional<claims_list>& found) {
    for (const auto& c : claims) {
      std::optional<fence::token> mark = host_.seen(database_, c.resource);
      if (found)
        for (const auto& f : *found)
          if (f.resource == c.resource && (!mark || *mark < f.presented)) mark = f.presented;
      if (mark && c.presented < *mark)
        host_.report({reason::stale, c.resource, c.presented, mark, {}}, "startup", true);
      else if (mark && gate_.policy.max_step > 0 && c.presented.value() - mark->value() > gate_.policy.max_step)
        host_.report({reason::jump, c.resource, c.presented, mark, {}}, "startup", true);
      else if (!found)
        host_.report({reason::unavailable, c.resource, c.presented, mark, "the marks cannot be read"}, "startup", true);
      else
        figures_.checks(metrics::check_outcome::admitted).add();
      host_.saw(database_, c.resource, c.presented);
    }
    bind_claims(bound_, claims);
    if (phase_ != phase::looking) return;
    if (held_ready_.empty())
      phase_ = phase::relaying;
    else
      serve();
    resume();
  });
}

// ── the end ─────────────────────────────────────────────────────────────────────────────────────────────────────────

void pg_engine::drain() {
  draining_ = true;
  if (phase_ == phase::opening) phase_ = phase::closing;
  if (at_rest()) close_with({"FATAL", "57P01", "the gate is shutting down", {}, "Connect again."});
}

void pg_engine::on_timer() {
  if (phase_ == phase::judging) return ask_why();
  if (phase_ != phase::arming) return;
  host_.report({reason::unavailable, {}, {}, {}, "the server has not answered"}, "startup", false);
  close_with(pg_error_of({reason::unavailable, {}, {}, {}, "the server has not answered to arming in time"}, "FATAL"));
}

void pg_engine::close_with(const wire::pg_error& e) {
  // Never inside a message that is half sent.
  if (backend_passing_ == 0) to_client += wire::encode_pg_error(e);
  phase_ = phase::closing;
}

void pg_engine::protocol_error(metrics::side whose, std::string_view what) {
  figures_.protocol_errors(whose).add();
  const std::string who = whose == metrics::side::client ? "client" : "server";
  close_with({"FATAL", "08P01", "protocol violation by the " + who + ": " + std::string(what), {}, {}});
}

}  // namespace fencegate::gate
