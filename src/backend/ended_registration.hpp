// A registration of a PostgreSQL session that the server has ended.
#pragma once

#include "fence/tag.hpp"

#include <cstdint>
#include <optional>

namespace fencegate::backend {

struct ended_registration {
  fence::claim held;
  std::optional<fence::token> mark;         // now
  bool raising = false;                     // a raise is under way: the mark may still rise
  std::optional<std::uint64_t> lowering{};  // which the mark stands under
};

}  // namespace fencegate::backend
