#include "wire/sql_json.hpp"

#include "base/json_check.hpp"
#include "base/json_text.hpp"

#include <algorithm>
#include <set>

namespace fencegate::wire {

namespace {

// pg_type.dat
enum type_oid : std::uint32_t {
  oid_bool = 16,
  oid_int8 = 20,
  oid_int2 = 21,
  oid_int4 = 23,
  oid_oid = 26,
  oid_json = 114,
  oid_float4 = 700,
  oid_float8 = 701,
  oid_numeric = 1700,
  oid_jsonb = 3802
};

}  // namespace

void append_sql_value(std::string& out, std::uint32_t type, std::optional<std::string_view> text) {
  if (!text) {
    out += "null";
    return;
  }
  switch (type) {
    case oid_bool:
      if (*text != "t" && *text != "f") break;
      out += *text == "t" ? "true" : "false";
      return;
    case oid_int2:
    case oid_int4:
    case oid_int8:
    case oid_oid:
    case oid_float4:
    case oid_float8:
    case oid_numeric:
      if (!is_json_number(*text)) break;
      out += *text;
      return;
    case oid_json:
    case oid_jsonb:
      if (!is_json(*text)) break;
      out += *text;
      return;
    default: break;
  }
  append_json_bytes(out, *text);
}

sql_row_writer::sql_row_writer(std::span<const sql_column> columns) {
  std::set<std::string, std::less<>> names;
  for (const sql_column& c : columns) {
    std::string name(c.name);
    for (int copy = 2; !names.insert(name).second; ++copy) name = std::string(c.name) + "_" + std::to_string(copy);
    columns_.push_back({std::move(name), c.type});
  }
}

void sql_row_writer::append(std::string& out, std::span<const std::optional<std::string_view>> values) const {
  json_object object(out);
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    object.name(columns_[i].name);
    append_sql_value(out, columns_[i].type, i < values.size() ? values[i] : std::nullopt);
  }
  object.end();
}

}  // namespace fencegate::wire
