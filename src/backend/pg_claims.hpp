// Claims and marks as PostgreSQL's functions of the fence take and give them, and what they reject with.
#pragma once

#include "backend/found_mark.hpp"
#include "fence/rejection.hpp"
#include "fence/tag.hpp"
#include "wire/pg_message.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace fencegate::backend {

// text[] literals. REQUIRES: names of resources, which have neither quotes nor backslashes.
[[nodiscard]] std::string array_of(const std::vector<std::string>& names);
[[nodiscard]] std::string resources_of(const std::vector<fence::claim>& claims);
// A bigint[] literal.
[[nodiscard]] std::string tokens_of(const std::vector<fence::claim>& claims);
[[nodiscard]] std::optional<fence::token> token_of(const std::optional<std::string>& text);
// Which lowering a mark stands under; and of several, as fencegate.guard answers it: one number, or "{1,NULL}".
[[nodiscard]] std::optional<std::uint64_t> lowering_of(const std::optional<std::string>& text);
[[nodiscard]] std::vector<std::optional<std::uint64_t>> lowerings_of(const std::optional<std::string>& text);

// What an error of fencegate.guard, hold, raise_all or spend means: ZF001 … ZF007, anything else is `unavailable`.
[[nodiscard]] fence::rejection rejection_of(const wire::pg_error& e, const std::vector<fence::claim>& claims);
// As one of them would reject it.
[[nodiscard]] wire::pg_error stale_error(const fence::claim& of, const found_mark& found);
// Of an error with an SQLSTATE of ours: its sentence without what fence::describe() says by itself, and what to do. "" of a
// stale token, of one that was used, and of a step that is too large: their sentences are made of the numbers.
[[nodiscard]] std::string particular_of(const wire::pg_error& e);
// Of what the gate asks by itself: the fence is not there, or not the one that it knows.
[[nodiscard]] bool is_of_another_version(const wire::pg_error& e);
// ZF006 that says: raise it first.
[[nodiscard]] bool is_not_raised(const wire::pg_error& e);

}  // namespace fencegate::backend
