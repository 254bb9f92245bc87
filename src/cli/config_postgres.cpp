#include "cli/config_postgres.hpp"

#include "cli/config_gate_common.hpp"

#include <chrono>
#include <string>

namespace fencegate::cli {
namespace {

using std::chrono::milliseconds;

// What the database's own functions take.
constexpr milliseconds cut_timeout_most = std::chrono::minutes(10);

// What other gates can do and this one cannot, each with its reason.
void check_policy(section& policy, const settings::postgres_gate& gate) {
  const bool pooled = gate.kept_by == settings::guard::transaction;
  if (gate.policy.spends()) {
    policy.complain("equal_token",
                    pooled ? "equal_token: reject is not served by postgres gates: the check of guard: transaction "
                             "compares the token with the mark, and does not note that it was used"
                           : "equal_token: reject is not served by postgres gates: the server does not count what a "
                             "session writes, so a token could only be good for one connection, not for one write");
  }
  if (gate.policy.read == fence::reads::fence)
    policy.complain(
        "reads", pooled
                     ? "reads: fence is not served by postgres gates: the check stands in front of every "
                       "transaction, of those that only read, too"
                     : "reads: fence is not served by postgres gates: armed sessions make no difference between reads "
                       "and writes; one whose token became stale is ended");
  if (pooled && gate.policy.missing == fence::missing_token::read_only)
    policy.complain("missing_token",
                    "missing_token: read_only needs guard: session: behind a transaction pooler a session does not "
                    "keep the setting that makes it read only; choose reject or allow");
}

void read_server(report& to, section& gate, settings::postgres_gate& out) {
  auto url = read_upstream(to, gate, parse_postgres_url);
  if (!url) return;
  out.upstream = std::move(url->where);
  out.control = std::move(url->control);
  check_files(to, gate, "upstream", url->secured);
  out.secured = std::move(url->secured);
  out.control_database = std::move(url->database);
  if (out.control.user.empty() && !out.control.password.empty())
    gate.complain("upstream", "upstream has a password without a user: add the user");
  if (gate.has("password_file") && out.control.password.text().find('\0') != std::string::npos)
    gate.complain("password_file", "password_file: the password has a NUL byte in it");
}

}  // namespace

settings::postgres_gate read_postgres_gate(report& to, section& gate) {
  settings::postgres_gate out;
  read_server(to, gate, out);
  gate.choice("guard", out.kept_by, words::guard);
  gate.choice("pooled", out.pooled, words::yes_or_no);
  if (gate.has("pooled") && out.kept_by != settings::guard::transaction)
    gate.warn("pooled", "pooled says nothing to guard: session, which serves no pooler");
  gate.choice("comment_tags", out.tags_in_sql, words::comment_tags);
  if (out.tags_in_sql == settings::comment_tags::lead && out.kept_by == settings::guard::transaction)
    gate.complain("comment_tags",
                  "comment_tags: lead needs guard: session: behind a transaction pooler a connection is "
                  "bound at its start, or never");
  gate.duration("cut_timeout", out.cut_timeout, milliseconds(1), cut_timeout_most);
  if (const auto node = gate.node("policy")) {
    section policy(to, *node, "policy", keys::policy);
    read_policy(policy, out.policy);
    check_policy(policy, out);
  }
  read_limits(to, gate, out);
  return out;
}

}  // namespace fencegate::cli
