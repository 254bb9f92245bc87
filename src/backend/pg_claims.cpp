#include "backend/pg_claims.hpp"

#include <algorithm>
#include <string_view>

namespace fencegate::backend {
namespace {

// A member of DETAIL, which is JSON that fencegate.reject wrote: names of resources have no quotes in it, so that
// nothing can look like a member.
std::optional<std::string_view> member(std::string_view json, std::string_view name) {
  const std::string key = "\"" + std::string(name) + "\":";
  auto at = json.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  json.remove_prefix(at + key.size());
  return json.substr(0, json.find_first_of(",}"));
}

std::optional<fence::token> number(std::string_view json, std::string_view name) {
  const auto text = member(json, name);
  return text ? token_of(std::string(*text)) : std::nullopt;
}

std::optional<fence::reason> reason_of(std::string_view sqlstate) {
  for (int i = 0; i < fence::reasons; ++i) {
    const auto why = static_cast<fence::reason>(i);
    if (fence::terms_of(why).sqlstate == sqlstate) return why;
  }
  return std::nullopt;
}

}  // namespace

std::string array_of(const std::vector<std::string>& names) {
  std::string out = "{";
  for (const auto& name : names) out += (out.size() > 1 ? ",\"" : "\"") + name + "\"";
  return out + "}";
}

std::string resources_of(const std::vector<fence::claim>& claims) {
  std::vector<std::string> names;
  names.reserve(claims.size());
  for (const auto& one : claims) names.push_back(one.resource);
  return array_of(names);
}

std::string tokens_of(const std::vector<fence::claim>& claims) {
  std::string out = "{";
  for (const auto& one : claims) out += (out.size() > 1 ? "," : "") + one.presented.to_string();
  return out + "}";
}

std::optional<fence::token> token_of(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  const auto value = fence::token::parse(*text);
  return value ? std::optional(*value) : std::nullopt;
}

std::optional<std::uint64_t> lowering_of(const std::optional<std::string>& text) {
  const auto number = token_of(text);  // of the same form
  return number ? std::optional(static_cast<std::uint64_t>(number->value())) : std::nullopt;
}

std::vector<std::optional<std::uint64_t>> lowerings_of(const std::optional<std::string>& text) {
  std::vector<std::optional<std::uint64_t>> out;
  std::string_view rest = text ? std::string_view(*text) : std::string_view();
  if (rest.starts_with('{') && rest.ends_with('}')) rest = rest.substr(1, rest.size() - 2);
  while (!rest.empty()) {
    const auto one = rest.substr(0, rest.find(','));
    out.push_back(lowering_of(std::string(one)));
    rest.remove_prefix(std::min(one.size() + 1, rest.size()));
  }
  return out;
}

bool is_of_another_version(const wire::pg_error& e) {
  constexpr std::string_view undefined_column = "42703";
  return e.message.find("fencegate") != std::string::npos || e.sqlstate == undefined_column;
}

fence::rejection rejection_of(const wire::pg_error& e, const std::vector<fence::claim>& claims) {
  const auto why = reason_of(e.sqlstate);
  fence::rejection out{why.value_or(fence::reason::unavailable), {}, {}, {}, e.message};
  if (!why) {
    if (is_of_another_version(e)) out.detail += " (run fencegate install)";
    return out;
  }
  auto name = member(e.detail, "resource").value_or("");
  if (name.size() > 2 && name.front() == '"') name = name.substr(1, name.size() - 2);
  const auto about = std::find_if(claims.begin(), claims.end(), [&](const auto& c) { return c.resource == name; });
  if (about != claims.end()) {
    out.resource = about->resource;
    out.presented = about->presented;
    out.mark = number(e.detail, "mark");
    if (const auto text = member(e.detail, "lowering")) out.lowering = lowering_of(std::string(*text));
  }
  out.detail = particular_of(e);
  return out;
}

wire::pg_error stale_error(const fence::claim& of, const found_mark& found) {
  const fence::rejection why{fence::reason::stale, of.resource, of.presented, found.mark, {}};
  wire::pg_error e{"ERROR", std::string(fence::terms_of(why.why).sqlstate), fence::describe(why), {}, {}};
  e.detail = "{\"resource\":\"" + of.resource + "\",\"token\":" + of.presented.to_string() +
             ",\"mark\":" + found.mark.to_string() +
             ",\"applied\":\"no\",\"lowering\":" + std::to_string(found.lowering) + "}";
  return e;
}

std::string particular_of(const wire::pg_error& e) {
  const auto why = reason_of(e.sqlstate);
  if (why == fence::reason::stale || why == fence::reason::equal) return {};
  if (why == fence::reason::jump)
    return std::string(member(e.detail, "leased").value_or("") == "true" ? fence::raised_by_leases_only : "");
  std::string_view text = e.message;
  constexpr std::string_view end = "; not applied";
  if (text.ends_with(end)) text.remove_suffix(end.size());
  const bool unavailable = e.sqlstate == fence::terms_of(fence::reason::unavailable).sqlstate;
  const std::string_view subject = unavailable ? "the mark" : "no usable fencing token";
  const std::string_view colon = unavailable ? " could not be checked: " : ": ";
  const auto at = text.find(colon);
  if (!text.starts_with(subject) || at == std::string_view::npos) return std::string(text);
  text.remove_prefix(at + colon.size());
  const auto numbers = text.rfind(" (token ");
  const auto numeric = [](std::string_view s) { return s.find_first_not_of("0123456789, mark)") == s.npos; };
  if (numbers != std::string_view::npos && numeric(text.substr(numbers + 8))) text = text.substr(0, numbers);
  // What a malformed token should be is known to whoever reads its sentence.
  const bool advises = unavailable && !e.hint.empty();
  return std::string(text) + (advises ? " (" + e.hint + ")" : "");
}

bool is_not_raised(const wire::pg_error& e) {
  return e.sqlstate == fence::terms_of(fence::reason::unavailable).sqlstate &&
         member(e.detail, "not_raised").value_or("") == "true";
}

}  // namespace fencegate::backend
