// What libpq's results and messages say. REQUIRES: libpq is loaded.
#pragma once

#include "backend/pg_link.hpp"
#include "wire/pg_message.hpp"

#include <libpq-fe.h>

#include <cstdint>
#include <optional>
#include <string>

namespace fencegate::backend {

[[nodiscard]] std::string first_line(const char* text);
[[nodiscard]] wire::pg_error error_of(const PGresult* from);
// A notice: FATAL or PANIC.
[[nodiscard]] bool ends_the_session(const PGresult* notice);
// The rows that the command has affected; nullopt: it counts none.
[[nodiscard]] std::optional<std::uint64_t> count_of(const PGresult* from);
[[nodiscard]] pg_outcome::block block_of(PGTransactionStatusType said);

}  // namespace fencegate::backend
