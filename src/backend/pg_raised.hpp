// What a raise of marks on the gate's own connection to PostgreSQL did.
#pragma once

#include "backend/found_mark.hpp"
#include "wire/pg_message.hpp"

#include <boost/system/result.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace fencegate::backend {

struct pg_raised {
  std::vector<std::string> rose{};  // resources whose marks were lower before
  std::uint64_t cut = 0;            // armed sessions of older tokens that were ended
  found_marks found{};              // all marks, each at its token
};

// An error: no mark has moved, or that is not known.
using pg_raise_result = boost::system::result<pg_raised, wire::pg_error>;

}  // namespace fencegate::backend
