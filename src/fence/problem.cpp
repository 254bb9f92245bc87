#include "fence/problem.hpp"

#include "base/json_text.hpp"

#include <algorithm>
#include <array>

namespace fencegate::fence {

namespace {

constexpr std::string_view type_prefix = "urn:fencegate:";

struct sql_terms {
  std::string_view sqlstate;  // whole, or its class; the first that fits counts
  int status;
  std::string_view name;
  std::string_view title;
};

constexpr std::array<sql_terms, 12> sql_table{{
    {"P0001", 400, "data", "The statement refused the data"},
    {"22", 400, "data", "The statement refused the data"},
    {"23502", 400, "data", "The statement refused the data"},
    {"23514", 400, "data", "The statement refused the data"},
    {"23", 409, "conflict", "The data conflict with what is there"},
    {"42501", 403, "forbidden", "The gate may not do that"},
    {"40", 503, "busy", "The database asks to try again"},
    {"53", 503, "busy", "The database asks to try again"},
    {"55P03", 503, "busy", "The database asks to try again"},
    {"57P03", 503, "busy", "The database asks to try again"},
    {"57014", 504, "timeout", "The statement took too long"},
    {"", 500, "statement", "The statement failed"},
}};

// Not `equal`, which proves that another request was applied: the check alone can say that, a statement cannot.
const reason_terms* find_reason(std::string_view sqlstate) {
  for (int i = 0; i < reasons; ++i) {
    const auto& terms = terms_of(static_cast<reason>(i));
    if (terms.sqlstate == sqlstate && static_cast<reason>(i) != reason::equal) return &terms;
  }
  return nullptr;
}

// At most `bytes_max` bytes, not cut inside a character.
std::string_view cut(std::string_view text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  while (bytes_max > 0 && (static_cast<unsigned char>(text[bytes_max]) & 0xC0) == 0x80) --bytes_max;
  return text.substr(0, bytes_max);
}

}  // namespace

problem problem_of(const rejection& r) {
  const auto& terms = terms_of(r.why);
  rejection advised = r;
  if (r.why == reason::missing && r.detail.empty()) advised.detail = "send it in the header field Fencing-Token";
  return {.status = terms.http_status,
          .name = std::string(terms.name),
          .title = std::string(terms.title),
          .detail = describe(advised),
          .applied = problem::effect::none,
          .resource = r.resource,
          .presented = r.presented,
          .mark = r.mark,
          .sqlstate = {}};
}

problem problem_of(const sql_error& e) {
  problem out;
  out.applied = problem::effect::none;
  out.sqlstate = e.sqlstate;
  if (const auto* reason = find_reason(e.sqlstate)) {
    out.status = reason->http_status;
    out.name = reason->name;
    out.title = reason->title;
  } else {
    const auto fits = [&e](const sql_terms& t) { return e.sqlstate.starts_with(t.sqlstate); };
    const auto& terms = *std::find_if(sql_table.begin(), sql_table.end(), fits);  // the last fits all
    out.status = terms.status;
    out.name = terms.name;
    out.title = terms.title;
  }
  out.detail = cut(e.message, detail_bytes_max);
  for (const auto more : {e.detail, e.hint}) {
    if (!more.empty()) out.detail.append(out.detail.empty() ? "" : "; ").append(cut(more, detail_bytes_max));
  }
  return out;
}

std::string problem_json(const problem& p) {
  std::string out;
  json_object object(out);
  object.add("type", p.name.empty() ? "about:blank" : std::string(type_prefix) + p.name);
  object.add("title", p.title);
  object.add("status", p.status);
  object.add("detail", cut(p.detail, detail_bytes_max));
  if (!p.resource.empty()) object.add("resource", cut(p.resource, detail_bytes_max));
  if (p.presented) object.add("token", p.presented->value());
  if (p.mark) object.add("mark", p.mark->value());
  if (!p.sqlstate.empty()) object.add("sqlstate", p.sqlstate);
  object.add("applied", p.applied == problem::effect::none ? "no" : "unknown");
  object.end();
  return out;
}

}  // namespace fencegate::fence
