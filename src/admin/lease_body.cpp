#include "admin/lease_body.hpp"

#include "base/limits.hpp"
#include "base/quantity_text.hpp"
#include "base/utf8.hpp"
#include "fence/printable.hpp"
#include "wire/strict_json.hpp"

#include <boost/json/object.hpp>

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace fencegate::admin {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;

constexpr milliseconds time_max = std::chrono::hours(24);

std::string_view view(json::string_view text) { return {text.data(), text.size()}; }

// The members of one object, taken by their names. The first thing that is wrong counts.
class members {
 public:
  members(json::object object, std::span<const std::string_view> known) : object_(std::move(object)) {
    for (const auto& member : object_) {
      const auto name = view(member.key());
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      std::string all;
      for (const auto one : known) all.append(all.empty() ? "" : ", ").append(one);
      fail("there is no member " + fence::quoted(name) + " here; known: " + all);
      return;
    }
  }

  [[nodiscard]] const json::value* find(std::string_view name) const {
    return object_.if_contains({name.data(), name.size()});
  }

  [[nodiscard]] std::optional<std::string_view> text(std::string_view name) {
    const auto* value = find(name);
    if (value == nullptr) return std::nullopt;
    const auto* text = value->if_string();
    if (text != nullptr) return view(*text);
    fail(std::string(name) + " must be a text");
    return std::nullopt;
  }

  [[nodiscard]] std::optional<milliseconds> time(std::string_view name) {
    const auto* value = find(name);
    if (value == nullptr) return std::nullopt;
    const auto* text = value->if_string();
    if (text == nullptr) {
      fail(std::string(name) + R"( must be a text with a unit, such as "30s")");
      return std::nullopt;
    }
    const auto read = parse_duration(view(*text));
    if (read && *read <= time_max) return *read;
    fail(std::string(name) + ": " + (read ? "it must be 24h or shorter" : read.error().message));
    return std::nullopt;
  }

  void fail(std::string message) {
    if (!failed_) failed_ = error{std::move(message)};
  }
  [[nodiscard]] const std::optional<error>& failed() const { return failed_; }

 private:
  json::object object_;
  std::optional<error> failed_;
};

result<members> read_object(std::string_view body, std::span<const std::string_view> known) {
  auto read = wire::parse_strict_json(body, limits::lease_body_depth_max);
  if (!read) return error{"the body: " + read.error().message};
  auto* object = read->if_object();
  if (object == nullptr) return error{"the body must be a JSON object"};
  members out(std::move(*object), known);
  if (out.failed()) return *out.failed();
  return {boost::system::in_place_value, std::move(out)};
}

std::string at(std::string_view list, std::size_t index) {
  return std::string(list) + "[" + std::to_string(index) + "]";
}

const std::string& name_rule() {
  static const std::string rule =
      "is no name of a resource: 1 to " + std::to_string(limits::resource_bytes_max) + " of A-Z a-z 0-9 _ . : / -";
  return rule;
}

const std::string& count_rule() {
  static const std::string rule = "from 1 to " + std::to_string(limits::tag_resources_max) + " resources";
  return rule;
}

std::vector<std::string> read_resources(members& from) {
  std::vector<std::string> out;
  const auto* value = from.find("resources");
  const auto* list = value == nullptr ? nullptr : value->if_array();
  if (list == nullptr || list->empty() || list->size() > limits::tag_resources_max) {
    from.fail("resources must be a list of " + count_rule());
    return out;
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    const auto* text = (*list)[i].if_string();
    if (text == nullptr || !fence::is_resource_name(view(*text))) {
      from.fail(at("resources", i) + (text == nullptr ? "" : " " + fence::quoted(view(*text))) + " " + name_rule());
      return out;
    }
    if (std::find(out.begin(), out.end(), view(*text)) != out.end()) {
      from.fail(at("resources", i) + " " + fence::quoted(view(*text)) + " is there twice");
      return out;
    }
    out.emplace_back(view(*text));
  }
  return out;
}

// A name for people.
std::string read_name(members& from, std::string_view member) {
  const auto text = from.text(member);
  if (!text) return "";
  if (text->empty() || text->size() > limits::lease_holder_bytes_max || !is_shown_text(view(*text))) {
    from.fail(std::string(member) + " must have 1 to " + std::to_string(limits::lease_holder_bytes_max) +
              " bytes, and no control characters");
  }
  return std::string(*text);
}

}  // namespace

bool is_grant_id(std::string_view text) {
  constexpr std::size_t digits = 32;
  const auto is_hexadecimal = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return text.size() == digits && std::all_of(text.begin(), text.end(), is_hexadecimal);
}

result<lease::lease_wish> read_lease_wish(std::string_view body) {
  static constexpr std::string_view known[] = {"id", "resources", "ttl", "wait", "stop_grace", "at_least", "holder"};
  auto from = read_object(body, known);
  if (!from) return from.error();
  lease::lease_wish out;
  if (const auto id = from->text("id")) {
    out.id = *id;
    if (!is_grant_id(out.id)) from->fail("id must have 32 hexadecimal digits, in lower case");
  }
  out.resources = read_resources(*from);
  out.ttl = from->time("ttl");
  if (out.ttl && out.ttl->count() == 0) from->fail("ttl must be longer than 0");
  out.stop_grace = from->time("stop_grace");
  out.wait = from->time("wait").value_or(milliseconds(0));
  out.at_least = from->time("at_least").value_or(milliseconds(0));
  out.holder = read_name(*from, "holder");
  if (from->failed()) return *from->failed();
  return out;
}

namespace {

std::span<const std::string_view> members_of(lease::operation::kind what) {
  using kind = lease::operation::kind;
  static constexpr std::string_view of_show[] = {"resources", "issuer", "by"};
  static constexpr std::string_view of_taking[] = {"resources", "issuer", "by", "reason"};
  static constexpr std::string_view of_forgetting[] = {"resources", "issuer", "by", "store"};
  static constexpr std::string_view of_move[] = {"resources", "issuer", "by", "to", "from_lost", "wait"};
  switch (what) {
    case kind::break_lease:
    case kind::freeze: return of_taking;
    case kind::forget_store: return of_forgetting;
    case kind::move: return of_move;
    case kind::show:
    case kind::thaw: break;
  }
  return of_show;
}

std::string read_needed(members& from, std::string_view name, bool needed) {
  const auto text = from.text(name).value_or("");
  if (needed && text.empty()) from.fail(std::string(name) + " is missing");
  return std::string(text);
}

}  // namespace

result<operator_request> read_operation(lease::operation::kind what, std::string_view body) {
  using kind = lease::operation::kind;
  auto from = read_object(body, members_of(what));
  if (!from) return from.error();
  operator_request out;
  auto& asked = out.asked;
  asked.what = what;
  if (what != kind::show || from->find("resources") != nullptr) asked.resources = read_resources(*from);
  if (lease::is_of_one(what) && asked.resources.size() > 1) from->fail("resources must be a list of one here");
  asked.issuer = from->text("issuer").value_or("");
  asked.reason = read_needed(*from, "reason", what == kind::break_lease || what == kind::freeze);
  asked.store = read_needed(*from, "store", what == kind::forget_store);
  asked.to = read_needed(*from, "to", what == kind::move);
  asked.wait = from->time("wait");
  if (const auto* lost = from->find("from_lost"); lost != nullptr) {
    if (!lost->is_bool()) from->fail("from_lost must be true or false");
    asked.from_lost = lost->is_bool() && lost->get_bool();
  }
  if (asked.from_lost && asked.wait) from->fail("wait is for a former issuer that is not lost");
  out.by = read_name(*from, "by");
  if (from->failed()) return *from->failed();
  return out;
}

result<writer_start> read_writer_start(std::string_view body) {
  static constexpr std::string_view known[] = {"started_ms", "container"};
  constexpr std::int64_t most = std::int64_t{1} << 43U;  // in nanoseconds it still is a number of 63 bits
  auto from = read_object(body, known);
  if (!from) return from.error();
  writer_start out;
  const auto* value = from->find("started_ms");
  const auto* number = value == nullptr ? nullptr : value->if_int64();
  if (number == nullptr || *number < 0 || *number > most)
    from->fail("started_ms must be a whole number of milliseconds on CLOCK_BOOTTIME");
  else
    out.at = lease::boot_clock::time_point(milliseconds(*number));
  out.container = from->text("container").value_or("");
  if (from->failed()) return *from->failed();
  return out;
}

result<fence::claims_list> read_lease_tokens(std::string_view body) {
  static constexpr std::string_view known[] = {"tokens"};
  const auto from = read_object(body, known);
  if (!from) return from.error();
  const auto* value = from->find("tokens");
  const auto* object = value == nullptr ? nullptr : value->if_object();
  if (object == nullptr || object->empty() || object->size() > limits::tag_resources_max)
    return error{"tokens must be an object of " + count_rule() + ", such as {\"orders\":35}"};
  fence::claims_list out;
  for (const auto& member : *object) {
    const auto name = view(member.key());
    if (!fence::is_resource_name(name)) return error{"tokens: " + fence::quoted(name) + " " + name_rule()};
    const auto* number = member.value().if_int64();
    if (number == nullptr || *number < 0)
      return error{"tokens." + std::string(name) + " must be a whole number from 0 to 9223372036854775807"};
    out.push_back({std::string(name), fence::token(*number)});
  }
  return out;
}

}  // namespace fencegate::admin
