// Which resource a key belongs to: rules `keys: "acct:{id}:*" -> resource: "acct:{id}"`, the first match wins.
//
// Pattern: literal bytes; `*` any run of bytes, also none; `{name}` a run of one or more bytes, ended by the first
// occurrence of the literal byte that follows it in the pattern (or by the key's end). `\` takes the next byte literally.
// Keys are binary and may be 512 MB long: matching takes time linear in the key (times the number of stars), no recursion.
#pragma once

#include "base/result.hpp"
#include "fence/policy.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fencegate::fence {

class key_rule {
 public:
  // Errors: an unbalanced brace, an empty or repeated name, `{a}{b}` or `{a}*` without a literal between (ambiguous), a
  // name in `resource` that `keys` does not have, characters in `resource` that no resource name may have.
  [[nodiscard]] static result<key_rule> compile(std::string_view keys, std::string_view resource, policy rules = {});

  // nullopt: the key does not match. Otherwise the resource's name, which may be an invalid one (a captured byte that no
  // resource name may have, or too long): check with is_resource_name and reject the write as malformed.
  [[nodiscard]] std::optional<std::string> match(std::string_view key) const;
  [[nodiscard]] const policy& rules() const { return policy_; }

 private:
  struct part {
    enum class kind { literal, star, capture } what;
    std::string text;  // literal bytes, or the capture's name
  };
  std::vector<part> keys_;
  std::vector<part> resource_;  // literals and captures
  policy policy_;
};

// Keys that match no rule.
enum class unmatched : unsigned char {
  tag,     // checked against every resource in the connection's tag
  pass,    // not fenced
  reject,  // writes to them are rejected as missing
};

}  // namespace fencegate::fence
