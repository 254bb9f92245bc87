#include "fence/header_tag.hpp"

#include "fence/printable.hpp"

#include <algorithm>

namespace fencegate::fence {

namespace {

// A list may have blanks on both sides of its commas (RFC 9110 section 5.6.1), a tag has none.
std::string without_blanks_at_commas(std::string_view text) {
  std::string out;
  std::string blanks;  // since the last byte that is none
  for (const char c : text) {
    if (c == ' ' || c == '\t') {
      blanks += c;
      continue;
    }
    const bool at_comma = c == ',' || out.ends_with(',');
    if (!at_comma) out += blanks;
    blanks.clear();
    out += c;
  }
  return out + blanks;
}

result<std::vector<claim>> read_value(std::string_view value, std::span<const std::string> resources) {
  if (value.find('=') != std::string_view::npos) return parse_tag(without_blanks_at_commas(value));
  const auto presented = token::parse(value);
  if (!presented) return presented.error();
  if (resources.size() != 1) {
    return error{resources.empty()
                     ? "a token without its resource, where no route names one; send resource=token"
                     : "a token without its resource, where the route names several; send resource=token"};
  }
  return std::vector<claim>{{resources.front(), *presented}};
}

// The only field of this name; nullptr: there is none.
result<const header_field*> find_only(std::span<const header_field> fields, std::string_view name) {
  const header_field* found = nullptr;
  for (const header_field& field : fields) {
    if (!looks_like_field_name(field.name, name)) continue;
    if (found != nullptr) return error{"the field " + printable(name, 64) + " stands twice"};
    found = &field;
  }
  return found;
}

bool say_the_same(std::vector<claim> a, std::vector<claim> b) {
  const auto by_name = [](const claim& x, const claim& y) { return x.resource < y.resource; };
  std::sort(a.begin(), a.end(), by_name);
  std::sort(b.begin(), b.end(), by_name);
  return a == b;
}

}  // namespace

result<std::optional<std::vector<claim>>> read_token_header(std::span<const header_field> fields,
                                                            std::string_view token_header,
                                                            std::span<const std::string> resources) {
  std::optional<std::vector<claim>> claims;
  const bool one_name = looks_like_field_name(token_header, other_token_header);
  for (const auto name : {token_header, one_name ? std::string_view{} : other_token_header}) {
    const auto field = find_only(fields, name);
    if (!field) return field.error();
    if (*field == nullptr) continue;
    auto read = read_value((*field)->value, resources);
    if (!read) return read.error();
    if (claims && !say_the_same(*claims, *read)) {
      return error{printable(token_header, 64) + " and " + std::string(other_token_header) + " differ"};
    }
    claims = std::move(*read);
  }
  return claims;
}

const std::string* find_unclaimed(std::span<const std::string> resources, std::span<const claim> claims) {
  const auto unclaimed = [claims](const std::string& resource) {
    return std::none_of(claims.begin(), claims.end(), [&](const claim& c) { return c.resource == resource; });
  };
  const auto found = std::find_if(resources.begin(), resources.end(), unclaimed);
  return found == resources.end() ? nullptr : &*found;
}

}  // namespace fencegate::fence
