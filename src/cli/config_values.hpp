// The texts inside a configuration: variables (addresses: base/address_text.hpp; durations and counts: base/quantity_text.hpp);
// and the guess at what a wrong word meant.
// Pure; errors say what is wrong with the text, the caller knows where it stands.
#pragma once

#include "base/address_text.hpp"
#include "base/quantity_text.hpp"
#include "base/result.hpp"

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fencegate::cli {

// Looks up a variable; nullopt: not set.
using variable_lookup = std::function<std::optional<std::string>(const std::string& name)>;

// Replaces `${NAME}` by the variable's value and `$$` by `$`; anything else behind a `$` is an error. What a variable
// holds is not expanded again.
[[nodiscard]] result<std::string> expand(std::string_view text, const variable_lookup& variable);

// The same for a URL: a variable in its user or password stands for itself and is percent-encoded on the way in, so
// that a password with "@" or "/" cannot become a part of the host.
[[nodiscard]] result<std::string> expand_url(std::string_view text, const variable_lookup& variable);

// ` (did you mean "…"?)` with the word nearest to `wrong`, or "" when none is near.
[[nodiscard]] std::string suggestion(std::string_view wrong, std::span<const std::string_view> words);

// `text` in double quotes, printable and short, for messages. An object: see fence::quoted.
struct quotation {
  [[nodiscard]] std::string operator()(std::string_view text) const;
};
inline constexpr quotation quoted;

}  // namespace fencegate::cli
