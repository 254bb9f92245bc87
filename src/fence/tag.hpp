// The fence tag, the text by which a token travels: `resource=token[,resource=token…]`, e.g. `orders=34,payments=12`.
#pragma once

#include "base/result.hpp"
#include "fence/token.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::fence {

// One resource and the token that a writer holds for it.
struct claim {
  std::string resource;
  token presented;

  friend bool operator==(const claim&, const claim&) = default;
};

using claims_list = std::vector<claim>;

// Errors: empty, a bad resource name or token, more than limits::tag_resources_max, a resource named twice with
// different tokens (the same token twice is one claim). No blanks are allowed.
[[nodiscard]] result<std::vector<claim>> parse_tag(std::string_view text);

// Finds the tag in a client name (Redis CLIENT SETNAME, PostgreSQL application_name): the text after `fence:` (in any
// case) up to the first byte that cannot be part of a tag. `fence:` counts only at the start of the name or behind a byte
// outside [A-Za-z0-9_.]. nullopt: the name carries no tag. An error: it carries one that is malformed, or two that differ.
[[nodiscard]] std::optional<result<std::vector<claim>>> find_tag(std::string_view client_name);

// The name has `fence:` in it, but inside a longer word (`app_fence:orders=33`), and so carries no tag.
[[nodiscard]] bool hides_tag(std::string_view client_name);

// A listener may have a tag of its own, to which each of its connections is bound. What a client brings there must be of
// that tag. nullopt: it is. Else what is wrong.
[[nodiscard]] std::optional<std::string> disagreement(const claims_list& of_listener, const claims_list& brought);

[[nodiscard]] std::string write_tag(const claims_list& claims);

}  // namespace fencegate::fence
