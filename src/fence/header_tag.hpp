// How a token travels in HTTP: `Fencing-Token: 34`, for the resource that the route names, or a fence tag in which blanks
// may stand at the commas, `Fencing-Token: orders=34, payments=12`. X-Fencing-Token is read as well.
#pragma once

#include "base/header_field.hpp"
#include "fence/tag.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::fence {

inline constexpr std::string_view other_token_header = "X-Fencing-Token";

// The claims of a request for its route's resources. nullopt: it carries no token.
// Errors: a field twice (`_` counts as `-`: X_Fencing_Token is one), two that say different things, a value that is
// neither digits nor a tag, digits where the route names no resource or several.
[[nodiscard]] result<std::optional<std::vector<claim>>> read_token_header(std::span<const header_field> fields,
                                                                          std::string_view token_header,
                                                                          std::span<const std::string> resources);

// The first resource without a claim; nullptr: each has one.
[[nodiscard]] const std::string* find_unclaimed(std::span<const std::string> resources, std::span<const claim> claims);

}  // namespace fencegate::fence
