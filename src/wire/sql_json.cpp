#include "wire/sql_json.hpp"

#include "base/json_text.hpp"

#include <boost/json/basic_parser_impl.hpp>

#include <algorithm>
#include <limits>
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

constexpr std::size_t json_depth_max = 256;

// Takes note of nothing: only whether a text is JSON is asked.
struct json_listener {
  using code = boost::json::error_code;
  using text = boost::json::string_view;
  static constexpr std::size_t max_object_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_array_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_key_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_string_size = std::numeric_limits<std::size_t>::max();

  static bool on_document_begin(code&) { return true; }
  static bool on_document_end(code&) { return true; }
  static bool on_object_begin(code&) { return true; }
  static bool on_object_end(std::size_t, code&) { return true; }
  static bool on_array_begin(code&) { return true; }
  static bool on_array_end(std::size_t, code&) { return true; }
  static bool on_key_part(text, std::size_t, code&) { return true; }
  static bool on_key(text, std::size_t, code&) { return true; }
  static bool on_string_part(text, std::size_t, code&) { return true; }
  static bool on_string(text, std::size_t, code&) { return true; }
  static bool on_number_part(text, code&) { return true; }
  static bool on_int64(std::int64_t, text, code&) { return true; }
  static bool on_uint64(std::uint64_t, text, code&) { return true; }
  static bool on_double(double, text, code&) { return true; }
  static bool on_bool(bool, code&) { return true; }
  static bool on_null(code&) { return true; }
  static bool on_comment_part(text, code&) { return true; }
  static bool on_comment(text, code&) { return true; }
};

bool is_json(std::string_view text) {
  boost::json::parse_options options;
  options.max_depth = json_depth_max;
  boost::json::basic_parser<json_listener> parser(options);
  boost::json::error_code wrong;
  const auto read = parser.write_some(false, text.data(), text.size(), wrong);
  return !wrong && read == text.size() && parser.done();
}

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
