// The environment of CMD: how unchanged programs come to their tokens. Pure.
//
//     FENCING_TOKEN, FENCING_RESOURCE   where this hold has one resource
//     FENCING_TOKEN_<NAME>              of each: `order:7` is FENCING_TOKEN_ORDER_7
//     FENCE_TAG                         `orders=34,payments=12`
//     PGOPTIONS                         what it was, and `-c fencing.tokens=TAG`
//     FENCEGATE_LEASE                   the id of the grant
//
// A hold inside another one adds: the tag, and so FENCING_TOKEN_<NAME>, are of both. The first two are its own.
#pragma once

#include "base/result.hpp"
#include "fence/tag.hpp"

#include <string>
#include <vector>

namespace fencegate::hold {

struct grant {
  fence::claims_list held;  // resources, and their tokens; never empty
  std::string tag;          // of these, as the issuer's API wrote it
  std::string id;
};

// inherited: NAME=value. What of it has one of the names above comes from outside and is dropped, but for the outer hold's.
// Errors: the outer tag is none, or has one of these resources, or both are too many; two resources have one variable;
// PGOPTIONS has `--`, behind which the server reads no options.
[[nodiscard]] result<std::vector<std::string>> environment_of(const grant& own,
                                                              const std::vector<std::string>& inherited);

// FENCING_TOKEN_<NAME>: upper case, `_` for what is no letter or digit.
[[nodiscard]] std::string token_variable(std::string_view resource);

}  // namespace fencegate::hold
