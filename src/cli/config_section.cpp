#include "cli/config_section.hpp"

#include <algorithm>

namespace fencegate::cli {
namespace {

std::string_view kind_of(const YAML::Node& node) {
  if (node.IsMap()) return "a map";
  if (node.IsSequence()) return "a list";
  return node.IsScalar() ? "text" : "empty";
}

// `!!binary` and the like would need a second meaning for each value.
bool has_foreign_tag(const YAML::Node& node) { return node.Tag() != "?" && node.Tag() != "!" && !node.Tag().empty(); }

bool is_plain_text(const YAML::Node& node) { return node.IsScalar() && !has_foreign_tag(node); }

}  // namespace

void report::add(const YAML::Mark& at, std::string message) {
  if (at.is_null())
    errors_.push_back({file_, 0, 0, std::move(message)});
  else
    errors_.push_back({file_, at.line + 1, at.column + 1, std::move(message)});
}

void report::warn(const YAML::Mark& at, std::string message) {
  warnings_.push_back(config_error{file_, at.line + 1, at.column + 1, "warning: " + std::move(message)}.to_string());
}

config_errors report::take() {
  std::stable_sort(errors_.begin(), errors_.end(), [](const config_error& a, const config_error& b) {
    return std::pair(a.line, a.column) < std::pair(b.line, b.column);
  });
  return std::move(errors_);
}

section::section(report& to, const YAML::Node& node, std::string_view what, std::span<const std::string_view> keys)
    : report_(to), what_(what), keys_(keys), mark_(node.Mark()) {
  if (!node.IsMap()) {
    report_.add(mark_, what_ + " must be a map of keys and values, not " + std::string(kind_of(node)));
    return;
  }
  for (const auto& pair : node) take_entry(pair.first, pair.second);
}

void section::take_entry(const YAML::Node& key, const YAML::Node& value) {
  const auto at = key.Mark();
  if (!is_plain_text(key)) {
    report_.add(at, "a key in " + what_ + " must be text");
    return;
  }
  const std::string& name = key.Scalar();
  if (!keys_.empty() && std::find(keys_.begin(), keys_.end(), name) == keys_.end()) {
    report_.add(at, "unknown key " + quoted(name) + " in " + what_ + suggestion(name, keys_));
    return;
  }
  const auto same = [&](const entry& e) { return e.key == name; };
  const auto first = std::find_if(entries_.begin(), entries_.end(), same);
  if (first != entries_.end()) {
    report_.add(
        at, "the key " + quoted(name) + " was given on line " + std::to_string(first->key_mark.line + 1) + " already");
    return;
  }
  entries_.push_back({name, at, value});
}

const section::entry* section::find(std::string_view key) const {
  const auto at = std::find_if(entries_.begin(), entries_.end(), [&](const entry& e) { return e.key == key; });
  return at == entries_.end() ? nullptr : &*at;
}

YAML::Mark section::mark(std::string_view key) const {
  const auto* e = find(key);
  if (!e) return mark_;
  // An empty value stands wherever the next token is.
  return e->value.IsNull() ? e->key_mark : e->value.Mark();
}

std::optional<YAML::Node> section::node(std::string_view key) {
  const auto* e = find(key);
  if (!e) return std::nullopt;
  if (!e->value.IsNull()) return e->value;
  complain(key, "the key " + quoted(key) + " has no value");
  return std::nullopt;
}

void section::require(std::string_view key) {
  if (!has(key)) report_.add(mark_, what_ + " needs the key " + quoted(key));
}

std::optional<std::string> section::text(std::string_view key) {
  const auto value = node(key);
  return value ? text_of(report_, *value, key) : std::nullopt;
}

std::optional<std::string> section::url(std::string_view key) {
  const auto value = node(key);
  return value ? text_of(report_, *value, key, expand_url) : std::nullopt;
}

void section::duration(std::string_view key, std::chrono::milliseconds& out, std::chrono::milliseconds least,
                       std::chrono::milliseconds most) {
  const auto value = text(key);
  if (!value) return;
  const auto parsed = parse_duration(*value);
  if (!parsed) {
    complain(key, std::string(key) + ": " + parsed.error().message);
  } else if (*parsed < least) {
    complain(key, std::string(key) + " must be " + write_duration(least) + " or longer");
  } else if (*parsed > most) {
    complain(key, std::string(key) + " must be " + write_duration(most) + " or shorter");
  } else {
    out = *parsed;
  }
}

std::optional<std::int64_t> section::whole_number(std::string_view key, std::int64_t least, std::int64_t most) {
  const auto value = text(key);
  if (!value) return std::nullopt;
  const auto parsed = parse_count(*value, least, most);
  if (parsed) return *parsed;
  complain(key, std::string(key) + " " + parsed.error().message);
  return std::nullopt;
}

void section::count_or_auto(std::string_view key, std::optional<std::int64_t>& out, std::int64_t least,
                            std::int64_t most) {
  const auto value = text(key);
  if (!value || *value == "auto") return;
  const auto parsed = parse_count(*value, least, most);
  if (parsed)
    out = *parsed;
  else
    complain(key, std::string(key) + " " + parsed.error().message + ", or auto");
}

std::optional<settings::address> section::address(std::string_view key) {
  const auto value = text(key);
  if (!value) return std::nullopt;
  auto parsed = parse_address(*value);
  if (parsed) return std::move(*parsed);
  complain(key, std::string(key) + ": " + parsed.error().message);
  return std::nullopt;
}

std::optional<std::string> text_of(report& to, const YAML::Node& node, std::string_view what, expansion* expanded_by) {
  if (!is_plain_text(node)) {
    const std::string found = node.IsScalar() ? "a tagged value" : std::string(kind_of(node));
    to.add(node.Mark(), std::string(what) + " must be text or a number, not " + found);
    return std::nullopt;
  }
  auto expanded = expanded_by(node.Scalar(), to.from.variable);
  if (expanded) return std::move(*expanded);
  to.add(node.Mark(), std::string(what) + ": " + expanded.error().message);
  return std::nullopt;
}

}  // namespace fencegate::cli
