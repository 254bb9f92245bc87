#include "backend/redis_greeting.hpp"

#include "backend/command_roles.hpp"
#include "backend/redis_replies.hpp"
#include "wire/resp_request.hpp"

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::backend {

using detail::is_error;
using detail::words_of;

namespace {

// Whether an element of COMMAND INFO's reply is about the command that was born with this name.
bool is_named(const wire::reply_value& entry, std::string_view name) {
  return !entry.elements.empty() && wire::iequals(entry.elements[0].text, name);
}

// Before the gate signs in itself, it meets the server as a client does.
void ask_as_a_stranger(redis_state& state, control_link& link) {
  link.send({"PING"}, [&state, &link](const wire::reply_value* reply) {
    if (reply == nullptr) return;
    const bool wants = is_error(reply) && reply->text.starts_with("NOAUTH");
    if (state.look().wants_auth != wants) state.change([&](redis_state::snapshot& p) { p.wants_auth = wants; });
    // Of what follows it would only say that strangers may not ask so much.
    if (wants && state.gate.control.password.empty())
      link.drop("Redis wants a password (NOAUTH), and the gate was given none");
  });
}

void sign_in(const settings::credentials& own, control_link& link) {
  const auto auth = sign_in_of(own);
  if (auth.empty()) return;
  link.send({auth.begin(), auth.end()}, [&link](const wire::reply_value* reply) {
    if (reply != nullptr && is_error(reply)) link.drop("Redis refused the gate's own user: " + words_of(reply));
  });
}

void read_commands(redis_state& state, control_link& link) {
  auto critical = critical_commands();
  critical.emplace_back("mset");
  auto not_found = std::make_shared<std::vector<std::string_view>>();
  std::vector<std::string_view> by_name{"COMMAND", "INFO"};
  by_name.insert(by_name.end(), critical.begin(), critical.end());
  link.send(by_name, [&link, critical, not_found](const wire::reply_value* reply) {
    if (reply == nullptr) return;
    if (is_error(reply) || reply->elements.size() != critical.size())
      return link.drop("COMMAND INFO failed: " + words_of(reply));
    for (std::size_t i = 0; i < critical.size(); ++i)
      if (!is_named(reply->elements[i], critical[i])) not_found->push_back(critical[i]);
  });
  link.send({"COMMAND"}, [&state, &link, not_found](const wire::reply_value* reply) {
    if (reply == nullptr) return;
    if (is_error(reply)) return link.drop("COMMAND failed: " + words_of(reply));
    auto table = command_table::build(*reply, state.gate.allow_commands, *not_found);
    if (table.has_error()) return link.drop(table.error().message);
    state.change([&](redis_state::snapshot& p) { p.commands = *table; });
  });
}

}  // namespace

std::vector<std::string> sign_in_of(const settings::credentials& user) {
  auto password = user.password.text();
  if (password.empty()) return {};
  if (user.user.empty()) return {"AUTH", std::move(password)};
  return {"AUTH", user.user, std::move(password)};
}

void greet(redis_state& state, control_link& link) {
  ask_as_a_stranger(state, link);
  sign_in(state.gate.control, link);
  read_commands(state, link);
}

}  // namespace fencegate::backend
