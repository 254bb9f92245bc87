// Texts of a route with parts of the request in them: `order:{id}` names a resource; `{query.when}`, `{header.X-User}`,
// `{body}` and `{token}` are for the commands of atomic routes. `\` takes the next byte literally.
#pragma once

#include "base/result.hpp"
#include "fence/route_pattern.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::fence {

class route_template {
 public:
  struct part {
    enum class kind : std::uint8_t { literal, path, query, header, body, token } what;
    std::string text;       // a literal's bytes; the name of what comes from the path, the query or a field
    std::size_t index = 0;  // path: which capture
    bool optional = false;  // query, header: `{query.when?}`
  };

  // Errors: unbalanced braces, a `\` at the end, a name that the pattern does not have, an unknown kind of name, a field
  // name with bytes that none has, `?` behind a name that is not alone or always there.
  [[nodiscard]] static result<route_template> parse(std::string_view text, const route_pattern& pattern);
  // The same for the name of a resource: of the request, only its path counts. Errors, too: literals that no resource name
  // may have, a name that is empty or always too long.
  [[nodiscard]] static result<route_template> parse_resource(std::string_view text, const route_pattern& pattern);

  [[nodiscard]] const std::vector<part>& parts() const { return parts_; }
  [[nodiscard]] bool uses(part::kind what) const;
  [[nodiscard]] bool uses_capture(std::size_t index) const;
  // What it stands for may be missing: `{query.when?}` and `{header.X-User?}`, which stand alone.
  [[nodiscard]] bool optional() const { return parts_.size() == 1 && parts_[0].optional; }

  // The resource's name, which may be an invalid one (and is then cut just past the limit): check with is_resource_name.
  // REQUIRES: from parse_resource, and captures of the same pattern.
  [[nodiscard]] std::string resource(const route_captures& captured) const;

  // Whether some path of the pattern gives a resource this name. REQUIRES: from parse_resource, and the same pattern.
  [[nodiscard]] bool can_name(std::string_view resource, const route_pattern& pattern) const;

  // `value_of(part)` → std::optional<std::string_view> is asked for all but literals and the path. nullopt: a part is not
  // in the request.
  template <class Lookup>
  [[nodiscard]] std::optional<std::string> expand(const route_captures& captured, Lookup value_of) const {
    std::string out;
    for (const part& p : parts_) {
      const std::optional<std::string_view> value = p.what == part::kind::literal ? std::string_view(p.text)
                                                    : p.what == part::kind::path  ? captured.values[p.index]
                                                                                  : value_of(p);
      if (!value) return std::nullopt;
      out += *value;
    }
    return out;
  }

 private:
  result<part> read_plain_name(std::string_view name, const route_pattern& pattern);
  result<part> read_name(std::string_view name, const route_pattern& pattern);

  std::string text_;  // for errors
  std::vector<part> parts_;
};

}  // namespace fencegate::fence
