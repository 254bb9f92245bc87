#include "backend/pg_said.hpp"

#include "backend/libpq.hpp"

#include <charconv>
#include <string_view>

namespace fencegate::backend {

// libpq's messages have several lines, the first says it.
std::string first_line(const char* text) {
  const std::string_view all = text == nullptr ? "" : text;
  return std::string(all.substr(0, all.find('\n')));
}

wire::pg_error error_of(const PGresult* from) {
  const auto field = [from](int code) {
    const char* text = pq().PQresultErrorField(from, code);
    return std::string(text == nullptr ? "" : text);
  };
  // What poolers say for themselves has a localized severity alone, or names no function of the server's: "" then.
  const bool of_server = !field(PG_DIAG_SOURCE_FUNCTION).empty();
  wire::pg_error e{of_server ? field(PG_DIAG_SEVERITY_NONLOCALIZED) : std::string(), field(PG_DIAG_SQLSTATE),
                   field(PG_DIAG_MESSAGE_PRIMARY), field(PG_DIAG_MESSAGE_DETAIL), field(PG_DIAG_MESSAGE_HINT)};
  if (e.message.empty()) e.message = first_line(pq().PQresultErrorMessage(from));
  return e;
}

bool ends_the_session(const PGresult* notice) {
  const char* severity = pq().PQresultErrorField(notice, PG_DIAG_SEVERITY_NONLOCALIZED);
  if (severity == nullptr) severity = pq().PQresultErrorField(notice, PG_DIAG_SEVERITY);
  return severity != nullptr && (std::string_view(severity) == "FATAL" || std::string_view(severity) == "PANIC");
}

std::optional<std::uint64_t> count_of(const PGresult* from) {
  // PQcmdTuples does not take a pointer to const, and changes nothing.
  const std::string_view digits = pq().PQcmdTuples(const_cast<PGresult*>(from));
  std::uint64_t count = 0;
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
  if (digits.empty() || failed != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return count;
}

pg_outcome::block block_of(PGTransactionStatusType said) {
  switch (said) {
    case PQTRANS_IDLE: return pg_outcome::block::none;
    case PQTRANS_INTRANS: return pg_outcome::block::open;
    case PQTRANS_INERROR: return pg_outcome::block::failed;
    default: return pg_outcome::block::unknown;
  }
}

}  // namespace fencegate::backend
