// Rows of PostgreSQL, in its text format, as JSON objects. Types are told by their OIDs and come out as in PostgreSQL's own
// to_json(): boolean as true and false, int2, int4, int8, oid, float4, float8 and numeric as numbers with all their digits
// (but for NaN and infinities, which are strings), json and jsonb as they are, NULL as null, and everything else as a
// string of its text: bytea as "\x…", arrays and timestamps as PostgreSQL prints them. Whoever reads numbers as doubles
// casts to text in the statement.
//
// The server is no more trusted than anybody: a number that is none becomes a string, text that is no UTF-8
// {"base64":"…"}.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::wire {

struct sql_column {
  std::string_view name;
  std::uint32_t type = 0;  // OID
};

class sql_row_writer {
 public:
  // Of columns with the same name, the later ones get "_2", "_3" … behind it.
  explicit sql_row_writer(std::span<const sql_column> columns);

  // Appends one object. REQUIRES: as many values as columns.
  void append(std::string& out, std::span<const std::optional<std::string_view>> values) const;

 private:
  struct column {
    std::string name;
    std::uint32_t type;
  };
  std::vector<column> columns_;
};

// One value by itself; nullopt is NULL.
void append_sql_value(std::string& out, std::uint32_t type, std::optional<std::string_view> text);

}  // namespace fencegate::wire
