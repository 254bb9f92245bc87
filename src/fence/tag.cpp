#include "fence/tag.hpp"

#include "base/limits.hpp"
#include "fence/printable.hpp"

#include <algorithm>

namespace fencegate::fence {

namespace {

constexpr std::string_view tag_prefix = "fence:";
constexpr std::size_t quoted_bytes_max = 64;

// Where `fence:` begins, in any case, at `from` or behind it. Somebody who writes `Fence:` means a tag: to take it for
// none would let the writes pass where missing tokens are allowed.
std::size_t find_prefix(std::string_view name, std::size_t from) {
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b; };
  const auto found = std::search(name.begin() + static_cast<std::ptrdiff_t>(from), name.end(), tag_prefix.begin(),
                                 tag_prefix.end(), same);
  return found == name.end() ? std::string_view::npos : static_cast<std::size_t>(found - name.begin());
}

bool is_tag_byte(char c) { return is_resource_byte(c) || c == '=' || c == ','; }

// Bytes in front of `fence:` that make it the end of a longer word ("no_fence:", "v2.fence:"), which is not ours.
bool continues_word(char c) { return is_resource_byte(c) && c != ':' && c != '/' && c != '-'; }

result<claim> parse_claim(std::string_view text) {
  const auto equals = text.find('=');
  if (equals == std::string_view::npos) {
    return error{"'" + printable(text, quoted_bytes_max) + "' in a fence tag is not resource=token"};
  }
  const auto name = text.substr(0, equals);
  if (!is_resource_name(name)) {
    return error{"'" + printable(name, quoted_bytes_max) +
                 "' in a fence tag is not a resource name: 1 to 200 bytes of A-Z a-z 0-9 _ . : / -"};
  }
  auto presented = token::parse(text.substr(equals + 1));
  if (!presented) return presented.error();
  return claim{std::string(name), *presented};
}

// Adds `next` unless it is there already.
result<void> add(std::vector<claim>& claims, claim next) {
  const auto same_name = [&next](const claim& c) { return c.resource == next.resource; };
  const auto twin = std::find_if(claims.begin(), claims.end(), same_name);
  if (twin != claims.end()) {
    if (twin->presented == next.presented) return {};
    return error{"a fence tag names " + next.resource + " twice, with tokens " + twin->presented.to_string() + " and " +
                 next.presented.to_string()};
  }
  if (claims.size() == limits::tag_resources_max) {
    return error{"a fence tag names more than " + std::to_string(limits::tag_resources_max) + " resources"};
  }
  claims.push_back(std::move(next));
  return {};
}

bool say_the_same(std::vector<claim> a, std::vector<claim> b) {
  const auto by_name = [](const claim& x, const claim& y) { return x.resource < y.resource; };
  std::sort(a.begin(), a.end(), by_name);
  std::sort(b.begin(), b.end(), by_name);
  return a == b;
}

}  // namespace

result<std::vector<claim>> parse_tag(std::string_view text) {
  if (text.empty()) return error{"a fence tag is empty; it reads resource=token[,resource=token...]"};
  std::vector<claim> claims;
  for (std::size_t at = 0;;) {
    const auto comma = text.find(',', at);
    auto next = parse_claim(text.substr(at, comma - at));  // comma may be npos: to the end
    if (!next) return next.error();
    if (auto added = add(claims, std::move(*next)); !added) return added.error();
    if (comma == std::string_view::npos) return claims;
    at = comma + 1;
  }
}

std::optional<result<std::vector<claim>>> find_tag(std::string_view client_name) {
  std::optional<result<std::vector<claim>>> found;
  for (std::size_t at = 0; (at = find_prefix(client_name, at)) != std::string_view::npos;) {
    const bool inside_word = at > 0 && continues_word(client_name[at - 1]);
    at += tag_prefix.size();
    if (inside_word) continue;

    auto end = at;
    while (end < client_name.size() && is_tag_byte(client_name[end])) ++end;
    auto claims = parse_tag(client_name.substr(at, end - at));
    if (!claims) return claims;
    if (found && !say_the_same(**found, *claims)) {
      return result<std::vector<claim>>(error{"a client name carries two fence tags that differ"});
    }
    if (!found) found = std::move(claims);
    // Behind the tag: a `fence:` inside its text belongs to a resource name.
    at = end;
  }
  return found;
}

bool hides_tag(std::string_view client_name) {
  return find_prefix(client_name, 0) != std::string_view::npos && !find_tag(client_name);
}

std::string write_tag(const claims_list& claims) {
  std::string out;
  for (const auto& one : claims) {
    if (!out.empty()) out += ',';
    out += one.resource + "=" + one.presented.to_string();
  }
  return out;
}

std::optional<std::string> disagreement(const claims_list& of_listener, const claims_list& brought) {
  if (of_listener.empty()) return std::nullopt;
  for (const auto& one : brought)
    if (std::find(of_listener.begin(), of_listener.end(), one) == of_listener.end())
      return "connections here carry " + write_tag(of_listener) +
             ", and nothing else: the listener's tag (tag_from: listen), or that of the lease which this gate holds";
  return std::nullopt;
}

}  // namespace fencegate::fence
