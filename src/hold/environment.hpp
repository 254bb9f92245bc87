// The environment of CMD: how unchanged programs come to their tokens. Pure.
//
//     FENCING_TOKEN, FENCING_RESOURCE   where this hold has one resource
//     FENCING_TOKEN_<NAME>              of each: `order:7` is FENCING_TOKEN_ORDER_7
//     FENCE_TAG                         `orders=34,payments=12`
//     PGOPTIONS                         what it was, and `-c fencing.tokens=TAG`
//     FENCEGATE_LEASE                   the id of the grant
//     FENCEGATE_SOCKET                  of a gate that binds all its connections to the grant (--private-gate)
//     PGHOST, PGPORT                    the same, where that gate speaks PostgreSQL's protocol
//
// A hold inside another one adds: the tag, and so FENCING_TOKEN_<NAME>, are of both. The first two are its own.
#pragma once

#include "base/result.hpp"
#include "fence/tag.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::hold {

// The unix socket of a private gate is `.s.PGSQL.5432` in a folder of its own, as libpq looks for it.
struct private_socket {
  static constexpr std::string_view port = "5432";
  std::string folder;
  bool of_postgres = false;

  [[nodiscard]] std::string path() const { return folder + "/.s.PGSQL." + std::string(port); }
};

struct grant {
  fence::claims_list held;  // resources, and their tokens; never empty
  std::string tag;          // of these, as the issuer's API wrote it
  std::string id;
  std::optional<private_socket> gate{};
};

// inherited: NAME=value. What of it has one of the names above comes from outside and is dropped, but for the outer hold's.
// Errors: the outer tag is none, or has one of these resources, or both are too many; two resources have one variable; one of
// both holds has a private gate; PGOPTIONS has `--`, behind which the server reads no options.
[[nodiscard]] result<std::vector<std::string>> environment_of(const grant& own,
                                                              const std::vector<std::string>& inherited);

// FENCING_TOKEN_<NAME>: upper case, `_` for what is no letter or digit.
[[nodiscard]] std::string token_variable(std::string_view resource);

}  // namespace fencegate::hold
