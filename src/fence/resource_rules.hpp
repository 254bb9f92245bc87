// Which resource a key belongs to: rules `keys: "acct:{id}:*" -> resource: "acct:{id}"`, the first match wins.
//
// Pattern: literal bytes; `*` any run of bytes, also none, as short as the rest of the pattern lets it be; `{name}` a run
// of one or more bytes, ended by the first occurrence of the literal byte that follows it in the pattern (or by the
// key's end). `\` takes the next byte literally.
// Keys are binary and may be 512 MB long: matching takes time linear in the key (times the length of the pattern), no
// recursion.
#pragma once

#include "base/result.hpp"
#include "fence/policy.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::fence {

class key_rule {
 public:
  // More captures in one pattern are an error.
  static constexpr std::size_t captures_max = 16;

  // Errors: empty `keys`, an unbalanced brace, a `\` at the end, an empty or repeated name, a name with bytes outside
  // [A-Za-z0-9_], `{a}{b}`, `{a}*` or `*{a}` without a literal between (ambiguous), a name in `resource` that `keys` does
  // not have, characters in `resource` that no resource name may have, a `resource` that is empty or always too long.
  [[nodiscard]] static result<key_rule> compile(std::string_view keys, std::string_view resource, policy rules = {});

  // nullopt: the key does not match. Otherwise the resource's name, which may be an invalid one (a captured byte that no
  // resource name may have, or too long, then cut just past the limit): check with is_resource_name and reject the write
  // as malformed.
  [[nodiscard]] std::optional<std::string> match(std::string_view key) const;
  // True when some key could be matched to this resource: whose policy is it?
  [[nodiscard]] bool can_name(std::string_view resource) const;
  // True when can_name() holds for every resource that `other` names, whatever its captures are.
  [[nodiscard]] bool can_name_all_of(const key_rule& other) const;
  [[nodiscard]] const policy& rules() const { return policy_; }

  friend bool operator==(const key_rule&, const key_rule&) = default;

 private:
  struct part {
    enum class kind { literal, capture } what;
    std::string text;       // literal bytes, never empty; or the capture's name
    std::size_t index = 0;  // of a capture: its place among the captures of `keys`
    friend bool operator==(const part&, const part&) = default;
  };
  // What stands between two stars. The first begins at the key's start, the last stops at its end; behind a star, a
  // segment is empty or begins with a literal. A capture is followed by a literal, or ends the pattern.
  using segment = std::vector<part>;
  class pattern_reader;
  class matcher;

  std::vector<segment> keys_;  // never empty; one more than there are stars
  std::vector<part> resource_;
  policy policy_;
};

struct rule_match {
  const key_rule* rule;  // lives in the span that was searched
  std::string resource;  // as from key_rule::match: check with is_resource_name
};

// The first rule that matches the key; nullopt when none does.
[[nodiscard]] std::optional<rule_match> first_match(std::span<const key_rule> rules, std::string_view key);

// Keys that match no rule.
enum class unmatched : unsigned char {
  tag,     // checked against every resource in the connection's tag
  pass,    // not fenced
  reject,  // writes to them are rejected as missing
};

}  // namespace fencegate::fence
