#include "lease/operation.hpp"

#include "base/json_text.hpp"
#include "base/limits.hpp"
#include "wire/strict_json.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <array>
#include <utility>

namespace fencegate::lease {
namespace {

namespace json = boost::json;
using kind = operation::kind;

constexpr std::array<std::pair<kind, std::string_view>, 6> names{{{kind::show, "show"},
                                                                  {kind::break_lease, "break"},
                                                                  {kind::freeze, "freeze"},
                                                                  {kind::thaw, "thaw"},
                                                                  {kind::forget_store, "forget-store"},
                                                                  {kind::move, "move"}}};

template <class All, class Text>
std::string list_of(const All& all, Text text) {
  std::string out = "[";
  for (const auto& one : all) out.append(out.size() > 1 ? "," : "").append(text(one));
  return out + ']';
}

std::string json_of(const place_entry& one) {
  std::string out;
  json_object object(out);
  object.add("place", one.name);
  if (one.mark) object.add("mark", one.mark->value());
  if (!one.issuer.empty()) object.add("issuer", one.issuer);
  if (!one.problem.empty()) object.add("problem", one.problem);
  object.end();
  return out;
}

std::string json_of(const lease_waiter& one) {
  std::string out;
  json_object object(out);
  object.add("holder", one.holder);
  object.add("since", one.since);
  object.end();
  return out;
}

std::string json_of(const moved_entry& one) {
  std::string out;
  json_object object(out);
  object.add("resource", one.resource);
  object.add("place", one.place);
  object.add("what", one.what);
  object.end();
  return out;
}

// What a sidecar answers, read with little suspicion: what is missing is empty.
class reader {
 public:
  explicit reader(const json::object& of) : of_(of) {}

  [[nodiscard]] std::string text(std::string_view name) const {
    const auto* value = find(name);
    return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
  }
  [[nodiscard]] std::optional<std::int64_t> number(std::string_view name) const {
    const auto* value = find(name);
    return value != nullptr && value->is_int64() ? std::optional(value->get_int64()) : std::nullopt;
  }
  [[nodiscard]] std::optional<fence::token> token(std::string_view name) const {
    const auto value = number(name);
    return value && *value >= 0 ? std::optional(fence::token(*value)) : std::nullopt;
  }
  [[nodiscard]] bool is(std::string_view name) const {
    const auto* value = find(name);
    return value != nullptr && value->is_bool() && value->get_bool();
  }
  // `call(reader)` for each object of a list.
  template <class Call>
  void each(std::string_view name, Call call) const {
    const auto* value = find(name);
    if (value == nullptr || !value->is_array()) return;
    for (const auto& one : value->get_array())
      if (one.is_object()) call(reader(one.get_object()));
  }
  template <class Call>
  void each_token(std::string_view name, Call call) const {
    const auto* value = find(name);
    if (value == nullptr || !value->is_object()) return;
    for (const auto& one : value->get_object())
      if (one.value().is_int64() && one.value().get_int64() >= 0)
        call(std::string(one.key()), fence::token(one.value().get_int64()));
  }

 private:
  [[nodiscard]] const json::value* find(std::string_view name) const {
    return of_.if_contains({name.data(), name.size()});
  }

  const json::object& of_;
};

}  // namespace

std::string_view name_of(operation::kind what) {
  for (const auto& [one, name] : names)
    if (one == what) return name;
  return "show";
}

std::optional<operation::kind> operation_named(std::string_view name) {
  for (const auto& [one, known] : names)
    if (known == name) return one;
  return std::nullopt;
}

bool is_of_one(operation::kind what) { return what == kind::show || what == kind::thaw || what == kind::forget_store; }

std::string json_of(const lease_entry& one, const std::vector<place_entry>& places) {
  std::string out;
  json_object object(out);
  object.add("resource", one.resource);
  object.add("token", one.granted.value());
  if (one.mark) object.add("mark", one.mark->value());
  object.add("holder", one.holder);
  object.add("since", one.since);
  object.add("left_ms", one.left.count());
  object.name("frozen");
  out += one.frozen ? "true" : "false";
  object.name("waiters");
  out += list_of(one.waiters, [](const auto& waiter) { return json_of(waiter); });
  if (!places.empty()) {
    object.name("places");
    out += list_of(places, [](const auto& place) { return json_of(place); });
  }
  object.end();
  return out;
}

std::string json_of(operation::kind what, const operation_result& done) {
  std::string out;
  json_object object(out);
  if (what == kind::show) {
    object.name("leases");
    out += list_of(done.leases, [](const auto& one) { return json_of(one, {}); });
    object.name("places");
    out += list_of(done.places, [](const auto& one) { return json_of(one); });
  }
  if (what == kind::break_lease || what == kind::freeze) {
    object.name("marks");
    json_object marks(out);
    for (const auto& one : done.marks) marks.add(one.resource, one.presented.value());
    marks.end();
  }
  if (what == kind::move) {
    object.name("moved");
    out += list_of(done.moved, [](const auto& one) { return json_of(one); });
  }
  object.end();
  return out;
}

result<operation_result> read_operation_result(std::string_view text) {
  const auto read = wire::parse_strict_json(text, limits::lease_body_depth_max);
  if (!read || !read->is_object()) return error{"the sidecar answered something unexpected"};
  const reader all(read->get_object());
  operation_result out;
  all.each("leases", [&](const reader& one) {
    out.leases.push_back({one.text("resource"), one.token("token").value_or(fence::token(0)), one.token("mark"),
                          one.text("holder"), one.text("since"),
                          std::chrono::milliseconds(one.number("left_ms").value_or(0)), one.is("frozen")});
    one.each("waiters", [&](const reader& waiter) {
      out.leases.back().waiters.push_back({waiter.text("holder"), waiter.text("since")});
    });
  });
  all.each("places", [&](const reader& one) {
    out.places.push_back({one.text("place"), one.token("mark"), one.text("issuer"), one.text("problem")});
  });
  all.each("moved", [&](const reader& one) {
    out.moved.push_back({one.text("resource"), one.text("place"), one.text("what")});
  });
  all.each_token("marks", [&](std::string name, fence::token mark) { out.marks.push_back({std::move(name), mark}); });
  return out;
}

}  // namespace fencegate::lease
