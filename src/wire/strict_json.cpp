#include "wire/strict_json.hpp"

#include "base/json_text.hpp"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fencegate::wire {
namespace {

namespace json = boost::json;
using json::error_code;
using json::string_view;

constexpr std::size_t quoted_bytes_max = 80;

// Builds the value as the library's own parser does, and knows the names of each object that is open.
class builder {
 public:
  static constexpr std::size_t max_object_size = json::object::max_size();
  static constexpr std::size_t max_array_size = json::array::max_size();
  static constexpr std::size_t max_key_size = json::string::max_size();
  static constexpr std::size_t max_string_size = json::string::max_size();

  [[nodiscard]] json::value take() { return built_.release(); }
  [[nodiscard]] const std::optional<std::string>& repeated() const { return repeated_; }

  bool on_document_begin(error_code& /*failed*/) {
    built_.reset();
    return true;
  }
  bool on_document_end(error_code& /*failed*/) { return true; }
  bool on_object_begin(error_code& /*failed*/) {
    names_.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t members, error_code& /*failed*/) {
    names_.pop_back();
    built_.push_object(members);
    return true;
  }
  bool on_array_begin(error_code& /*failed*/) { return true; }
  bool on_array_end(std::size_t values, error_code& /*failed*/) {
    built_.push_array(values);
    return true;
  }
  bool on_key_part(string_view text, std::size_t /*so_far*/, error_code& /*failed*/) {
    name_.append(text.data(), text.size());
    built_.push_chars(text);
    return true;
  }
  bool on_key(string_view text, std::size_t /*bytes*/, error_code& failed) {
    name_.append(text.data(), text.size());
    built_.push_key(text);
    const auto [at, is_new] = names_.back().insert(std::exchange(name_, {}));
    if (is_new) return true;
    repeated_ = *at;
    failed = json::make_error_code(json::error::syntax);
    return false;
  }
  bool on_string_part(string_view text, std::size_t /*so_far*/, error_code& /*failed*/) {
    built_.push_chars(text);
    return true;
  }
  bool on_string(string_view text, std::size_t /*bytes*/, error_code& /*failed*/) {
    built_.push_string(text);
    return true;
  }
  bool on_number_part(string_view /*text*/, error_code& /*failed*/) { return true; }
  bool on_int64(std::int64_t number, string_view /*text*/, error_code& /*failed*/) {
    built_.push_int64(number);
    return true;
  }
  bool on_uint64(std::uint64_t number, string_view /*text*/, error_code& /*failed*/) {
    built_.push_uint64(number);
    return true;
  }
  bool on_double(double number, string_view /*text*/, error_code& /*failed*/) {
    built_.push_double(number);
    return true;
  }
  bool on_bool(bool truth, error_code& /*failed*/) {
    built_.push_bool(truth);
    return true;
  }
  bool on_null(error_code& /*failed*/) {
    built_.push_null();
    return true;
  }
  bool on_comment_part(string_view /*text*/, error_code& /*failed*/) { return true; }
  bool on_comment(string_view /*text*/, error_code& /*failed*/) { return true; }

 private:
  json::value_stack built_;
  std::vector<std::set<std::string>> names_;
  std::string name_;
  std::optional<std::string> repeated_;
};

}  // namespace

result<json::value> parse_strict_json(std::string_view text, std::size_t depth_max) {
  json::parse_options options;
  options.max_depth = depth_max;
  json::basic_parser<builder> parser(options);
  error_code failed;
  const std::size_t read = parser.write_some(false, text.data(), text.size(), failed);
  const std::string at = " at byte " + std::to_string(read);
  if (const auto& name = parser.handler().repeated()) {
    std::string quoted;
    append_json_string(quoted, std::string_view(*name).substr(0, quoted_bytes_max));
    return error{"the member " + quoted + " is there twice"};
  }
  if (failed) return error{"no JSON: " + failed.message() + at};
  if (read < text.size()) return error{"no JSON: something stands behind the value" + at};
  return parser.handler().take();
}

}  // namespace fencegate::wire
