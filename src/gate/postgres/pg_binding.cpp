#include "gate/postgres/pg_binding.hpp"

#include "backend/pg_claims.hpp"
#include "gate/relay/connection_shares.hpp"

#include <algorithm>
#include <charconv>
#include <string>

namespace fencegate::gate {
namespace {

constexpr std::string_view not_applied = "; not applied";
constexpr std::string_view name_setting = "application_name";
constexpr std::string_view no_schema = "this database has no schema fencegate: run fencegate install";

const fence::claim* claim_on(const claims_list& list, std::string_view resource) {
  const auto at = std::find_if(list.begin(), list.end(), [&](const auto& c) { return c.resource == resource; });
  return at == list.end() ? nullptr : &*at;
}

// Adds a tag's claims; the same resource with another token is an error.
result<void> merge(claims_list& into, const claims_list& more) {
  for (const auto& c : more) {
    const auto* known = claim_on(into, c.resource);
    if (known == nullptr)
      into.push_back(c);
    else if (*known != c)
      return error{"two tags disagree about " + c.resource + ": token " + known->presented.to_string() + " and token " +
                   c.presented.to_string()};
  }
  return {};
}

result<void> merge_tag(claims_list& into, std::string_view text, std::string_view source) {
  auto parsed = fence::parse_tag(text);
  if (!parsed) return error{std::string(source) + ": " + parsed.error().message};
  return merge(into, *parsed);
}

std::string json_number(const std::optional<fence::token>& t) { return t ? t->to_string() : "null"; }

// The number behind `"name":` in a DETAIL of ours. What does not look like it is not there.
std::optional<fence::token> number_in(std::string_view json, std::string_view name) {
  const std::string key = "\"" + std::string(name) + "\":";
  const auto at = json.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  auto digits = json.substr(at + key.size());
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  digits = digits.substr(0, digits.find_first_not_of("0123456789"));
  const auto value = fence::token::parse(digits);
  return value ? std::optional(*value) : std::nullopt;
}

std::string resource_in(std::string_view json) {
  constexpr std::string_view key = "\"resource\":";
  auto at = json.find(key);
  if (at == std::string_view::npos) return "";
  auto name = json.substr(at + key.size());
  while (name.starts_with(' ')) name.remove_prefix(1);
  if (!name.starts_with('"')) return "";  // null
  name.remove_prefix(1);
  name = name.substr(0, name.find('"'));
  return fence::is_resource_name(name) ? std::string(name) : "";
}

// The schema's messages end as fence::describe() ends.
std::string without_end(std::string_view message) {
  if (message.ends_with(not_applied)) message.remove_suffix(not_applied.size());
  return std::string(message);
}

std::optional<fence::reason> reason_of(std::string_view sqlstate) {
  for (int i = 0; i < fence::reasons; ++i) {
    const auto why = static_cast<fence::reason>(i);
    if (fence::terms_of(why).sqlstate == sqlstate) return why;
  }
  return std::nullopt;
}

// For a literal in single quotes, whatever standard_conforming_strings says, inside a dollar quote.
std::string literal(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'')
      out += "''";
    else if (c == '\\')
      out += '/';
    else if (c == '$' || c == '\0')
      out += '?';
    else
      out += c;
  }
  return out + "'";
}

// The elements of both arrays. Resource names have no quotes or backslashes (fence::is_resource_name), tokens are digits.
std::pair<std::string, std::string> lists_of(const claims_list& claims) {
  std::string resources, tokens;
  for (const auto& c : claims) {
    resources += (resources.empty() ? "'" : ",'") + c.resource + "'";
    tokens += (tokens.empty() ? "'" : ",'") + c.presented.to_string() + "'";
  }
  return {resources, tokens};
}

// All settings of a start-up packet: its own parameters, and those inside `options`.
std::vector<wire::pg_option> settings_of(const wire::pg_opening& opening) {
  std::vector<wire::pg_option> out;
  for (const auto& [name, value] : opening.parameters) {
    if (name == "options") {
      for (auto& one : wire::pg_settings_in_options(value)) out.push_back(std::move(one));
      continue;
    }
    std::string lower = name;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
    out.push_back({std::move(lower), value});
  }
  return out;
}

}  // namespace

result<claims_list> claims_of(const wire::pg_opening& opening) {
  claims_list out;
  for (const auto& [name, value] : settings_of(opening)) {
    if (name == tokens_setting) {
      if (const auto merged = merge_tag(out, value, tokens_setting); !merged) return merged.error();
    } else if (name == name_setting) {
      const auto tag = fence::find_tag(value);
      if (!tag) continue;
      if (!*tag) return error{"application_name: " + tag->error().message};
      if (const auto merged = merge(out, **tag); !merged) return merged.error();
    }
  }
  return out;
}

bool brings_name(const wire::pg_opening& opening) {
  const auto all = settings_of(opening);
  return std::any_of(all.begin(), all.end(), [](const auto& one) { return one.name == name_setting; });
}

fence::rejection about_single(fence::rejection why, const claims_list& claims) {
  if (why.resource.empty() && claims.size() == 1) {
    why.resource = claims[0].resource;
    why.presented = claims[0].presented;
  }
  return why;
}

result<claims_list> claims_of_comment(std::string_view tag) {
  claims_list out;
  if (const auto merged = merge_tag(out, tag, "comment"); !merged) return merged.error();
  return out;
}

claims_list claims_beyond(const claims_list& bound, const claims_list& wanted) {
  claims_list out;
  for (const auto& c : wanted) {
    const auto* known = claim_on(bound, c.resource);
    if (known == nullptr || *known != c) out.push_back(c);
  }
  return out;
}

void bind_claims(claims_list& bound, const claims_list& added) {
  for (const auto& c : added) {
    std::erase_if(bound, [&](const auto& b) { return b.resource == c.resource; });
    bound.push_back(c);
  }
}

std::string guard_statement(const claims_list& claims) {
  const auto [resources, tokens] = lists_of(claims);
  if (claims.size() == 1) return "SELECT fencegate.guard_one_under(" + resources + "," + tokens + ")";
  return "SELECT fencegate.guard_under(ARRAY[" + resources + "]::pg_catalog.text[],ARRAY[" + tokens +
         "]::pg_catalog.int8[])";
}

std::string arm_query(const claims_list& claims, std::chrono::milliseconds cut_timeout, std::int64_t max_step,
                      std::int32_t pid) {
  const auto [resources, tokens] = lists_of(claims);
  return wire::encode_pg_query(
      "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE;SET LOCAL statement_timeout=0;SET LOCAL jit=off;"
      "SELECT resource,mark,raised,cut,lowering FROM fencegate.arm_all(ARRAY[" +
      resources + "]::pg_catalog.text[],ARRAY[" + tokens + "]::pg_catalog.int8[]," +
      std::to_string(cut_timeout.count()) + "::pg_catalog.int4,'" + std::to_string(max_step) +
      "'::pg_catalog.int8) WHERE pg_catalog.pg_backend_pid() OPERATOR(pg_catalog.=) '" + std::to_string(pid) +
      "'::pg_catalog.int4");
}

bool is_fences_own(const wire::pg_error& e) { return reason_of(e.sqlstate).has_value(); }

wire::pg_error pg_error_of_limit(const std::string& why) {
  return {"FATAL", "53300", too_many_connections(why), {}, {}};
}

fence::rejection rejection_of(const wire::pg_error& e, const claims_list& claims) {
  fence::rejection why;
  why.why = fence::reason::unavailable;
  if (const auto ours = reason_of(e.sqlstate)) {
    why.why = *ours;
    why.resource = resource_in(e.detail);
    why.presented = number_in(e.detail, "token");
    why.mark = number_in(e.detail, "mark");
    if (const auto lowering = number_in(e.detail, "lowering"))
      why.lowering = static_cast<std::uint64_t>(lowering->value());
  }
  if (e.sqlstate == "3F000" || e.sqlstate == "42883" || e.sqlstate == "42P01" || e.sqlstate == "42703")
    why.detail = no_schema;
  else if (!reason_of(e.sqlstate))
    why.detail = e.message;
  else
    why.detail = backend::particular_of(e);
  return about_single(std::move(why), claims);
}

bool arm_reading::take(char type, std::string_view body) {
  if (proven_.empty()) proven_.resize(claims_.size());
  switch (type) {
    case 'D': take_row(body); break;
    case 'T':
    case 'C': break;
    case 'E': {
      auto e = wire::decode_pg_error(body);
      if (!e)
        fail("an error that cannot be read: " + e.error().message);
      else if (!error_)
        error_ = std::move(*e);
      break;
    }
    case 'Z': {
      const auto status = wire::decode_pg_ready(body);
      status_ = status ? *status : '?';
      return true;
    }
    default: fail(std::string("an unexpected reply of type ") + type);
  }
  return false;
}

void arm_reading::take_row(std::string_view body) {
  const auto row = wire::decode_pg_row(body);
  if (!row || row->size() != 5 || !(*row)[0] || !(*row)[1] || !(*row)[2] || !(*row)[3])
    return fail("the answer of fencegate.arm_all has not the expected form");
  for (std::size_t i = 0; i < claims_.size(); ++i) {
    if (*(*row)[0] != claims_[i].resource) continue;
    if (proven_[i] || *(*row)[1] != claims_[i].presented.to_string())
      return fail("fencegate.arm_all answered with another mark than the token");
    proven_[i] = true;
    if (*(*row)[2] == "t") did_.rose.push_back(claims_[i].resource);
    std::uint64_t n = 0;
    std::from_chars((*row)[3]->data(), (*row)[3]->data() + (*row)[3]->size(), n);
    did_.cut += n;
    const auto lowering = (*row)[4] ? backend::lowering_of(std::string(*(*row)[4])) : std::nullopt;
    if (lowering) did_.found.push_back({claims_[i].resource, claims_[i].presented, *lowering});
    return;
  }
  fail("fencegate.arm_all answered for a resource that was not asked");
}

void arm_reading::fail(std::string why) {
  if (problem_.empty()) problem_ = std::move(why);
}

arm_reading::outcome arm_reading::judge() const {
  outcome out;
  const bool none = status_ == 'I' && std::find(proven_.begin(), proven_.end(), true) == proven_.end();
  const bool all = !proven_.empty() && std::find(proven_.begin(), proven_.end(), false) == proven_.end();
  if (!error_ && problem_.empty() && all && status_ == 'I') {
    out.armed = true;
    out.did = did_;
    return out;
  }
  if (error_)
    out.why = rejection_of(*error_, claims_);
  else
    out.why = about_single({fence::reason::unavailable,
                            {},
                            {},
                            {},
                            !problem_.empty() ? problem_
                            : none ? "this session is not the one that was announced: a pooler in between takes guard: "
                                     "transaction"
                                   : "the server's answer to arming is incomplete"},
                           claims_);
  return out;
}

std::string pg_detail(const fence::rejection& why, applied certain) {
  const std::string resource = fence::is_resource_name(why.resource) ? "\"" + why.resource + "\"" : "null";
  return "{\"resource\":" + resource + ",\"token\":" + json_number(why.presented) +
         ",\"mark\":" + json_number(why.mark) + ",\"applied\":\"" + (certain == applied::no ? "no" : "unknown") + "\"}";
}

wire::pg_error pg_error_of(const fence::rejection& why, std::string_view severity, applied certain) {
  wire::pg_error e;
  e.severity = severity;
  e.sqlstate = fence::terms_of(why.why).sqlstate;
  e.message = fence::describe(why);
  if (certain == applied::unknown) {
    e.message = without_end(e.message) + "; whether the last statements were applied is not known";
  }
  e.detail = pg_detail(why, certain);
  switch (why.why) {
    case fence::reason::stale: e.hint = "Another holder has taken over. Do not retry with this token."; break;
    case fence::reason::missing:
      e.hint =
          "Connect with PGOPTIONS='-c fencing.tokens=RESOURCE=TOKEN', or put fence:RESOURCE=TOKEN into "
          "application_name.";
      break;
    case fence::reason::unavailable:
      e.hint = why.detail == no_schema
                   ? "fencegate install -c FILE --gate NAME prints what is to be run in this database, with --print."
                   : "Try again later.";
      break;
    default: break;
  }
  return e;
}

std::string failing_statement(const wire::pg_error& e) {
  std::string sql = "DO LANGUAGE plpgsql $fencegate$BEGIN RAISE EXCEPTION USING ERRCODE=" + literal(e.sqlstate) +
                    ",MESSAGE=" + literal(e.message) + ",DETAIL=" + literal(e.detail);
  if (!e.hint.empty()) sql += ",HINT=" + literal(e.hint);
  return sql + ";END$fencegate$";
}

}  // namespace fencegate::gate
