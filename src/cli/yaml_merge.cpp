#include "cli/yaml_merge.hpp"

#include "base/json_text.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace fencegate::cli {
namespace {

constexpr std::size_t step = 2;  // further to the right, in block style

error at_line(const YAML::Node& node, const std::string& what) {
  return {"line " + std::to_string(node.Mark().line + 1) + ": " + what};
}

// Whether it was written without quotes, and is no text: of JSON, too.
bool is_bare(const YAML::Node& scalar) {
  if (scalar.Tag() == "!") return false;
  const auto& text = scalar.Scalar();
  return text == "true" || text == "false" || is_json_number(text);
}

void write_json(std::string& out, const YAML::Node& node) {
  if (node.IsScalar()) {
    if (is_bare(node))
      out += node.Scalar();
    else
      append_json_string(out, node.Scalar());
    return;
  }
  out += node.IsMap() ? '{' : '[';
  std::string_view between;
  for (const auto& one : node) {
    out += between;
    between = ", ";
    if (node.IsMap()) {
      append_json_string(out, one.first.Scalar());
      out += ": ";
    }
    write_json(out, node.IsMap() ? one.second : YAML::Node(one));
  }
  out += node.IsMap() ? '}' : ']';
}

// As it was written: with quotes where it had them, or in braces.
void write_inline(std::string& out, const YAML::Node& node) {
  if (!node.IsScalar()) {
    write_json(out, node);
  } else if (node.Tag() == "!") {
    append_json_string(out, node.Scalar());
  } else {
    out += node.Scalar();
  }
}

// Lines of a map or a sequence. The first begins where the text stands, behind `indent` blanks or a hyphen.
void write_block(std::string& out, const YAML::Node& node, std::size_t indent) {
  bool first = true;
  for (const auto& one : node) {
    if (!std::exchange(first, false)) out.append(indent, ' ');
    if (node.IsMap()) out += one.first.Scalar() + ":";
    if (node.IsSequence()) out += "- ";
    const YAML::Node value = node.IsMap() ? one.second : YAML::Node(one);
    const bool is_block = !value.IsScalar() && value.Style() == YAML::EmitterStyle::Block;
    if (is_block && node.IsMap()) {
      out += '\n';
      out.append(indent + step, ' ');
    } else if (node.IsMap()) {
      out += ' ';
    }
    if (is_block) {
      write_block(out, value, indent + step);
    } else {
      write_inline(out, value);
      out += '\n';
    }
  }
}

}  // namespace

std::optional<yaml_entry> entry_of(const YAML::Node& map, std::string_view name) {
  if (!map.IsMap()) return std::nullopt;
  for (const auto& pair : map)
    if (pair.first.IsScalar() && pair.first.Scalar() == name) return yaml_entry{pair.first, pair.second};
  return std::nullopt;
}

yaml_merge::yaml_merge(std::string_view text) : text_(text), lines_{0} {
  for (std::size_t at = 0; at < text.size(); ++at)
    if (text[at] == '\n') lines_.push_back(at + 1);
}

result<void> yaml_merge::add(const YAML::Node& key, const YAML::Node& of, const YAML::Node& more) {
  // An alias stands where its anchor is: what is put there would come to others, too.
  if (of.Mark().pos <= key.Mark().pos) return at_line(key, key.Scalar() + " is an alias: write it out");
  if (of.Type() != more.Type()) return at_line(key, key.Scalar() + " is no " + (more.IsMap() ? "map" : "sequence"));
  if (more.IsSequence()) return put(key, of, more);
  YAML::Node lacking(YAML::NodeType::Map);
  lacking.SetStyle(more.Style());
  for (const auto& pair : more) {
    const auto there = entry_of(of, pair.first.Scalar());
    if (!there) {
      lacking[pair.first] = pair.second;
      continue;
    }
    const auto& now = there->value;
    if (pair.second.IsScalar() && now.IsScalar() && now.Scalar() == pair.second.Scalar()) continue;
    if (pair.second.IsScalar()) return at_line(there->key, pair.first.Scalar() + " is there already");
    if (auto added = add(there->key, there->value, pair.second); !added) return added;
  }
  return lacking.size() == 0 ? result<void>() : put(key, of, lacking);
}

result<void> yaml_merge::put(const YAML::Node& key, const YAML::Node& into, const YAML::Node& what) {
  return into.Style() == YAML::EmitterStyle::Flow ? put_flow(into, what) : put_block(key, into, what);
}

// Behind the line of its key, so that a comment in front of its first entry stays there.
result<void> yaml_merge::put_block(const YAML::Node& key, const YAML::Node& into, const YAML::Node& what) {
  const auto line = static_cast<std::size_t>(key.Mark().line), first = static_cast<std::size_t>(into.Mark().line);
  const auto indent = static_cast<std::size_t>(into.Mark().column);
  if (first <= line || first >= lines_.size()) return at_line(key, key.Scalar() + " and its value stand on one line");
  const auto blanks = std::string_view(text_).substr(lines_[first], indent);
  if (blanks.find_first_not_of(' ') != std::string_view::npos)
    return at_line(into, "an entry of " + key.Scalar() + " is not in a line of its own");
  std::string text(indent, ' ');
  write_block(text, what, indent);
  insertions_.push_back({lines_[line + 1], std::move(text)});
  return {};
}

result<void> yaml_merge::put_flow(const YAML::Node& into, const YAML::Node& what) {
  const auto at = static_cast<std::size_t>(into.Mark().pos);
  if (at >= text_.size() || text_[at] != (into.IsMap() ? '{' : '['))
    return at_line(into, "an anchor or a tag is in front of a brace: write it without");
  std::string text;
  write_json(text, what);
  text = text.substr(1, text.size() - 2) + (into.size() == 0 ? "" : ", ");
  insertions_.push_back({at + 1, std::move(text)});
  return {};
}

std::string yaml_merge::take() const {
  auto sorted = insertions_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.at < b.at; });
  std::string out;
  std::size_t done = 0;
  for (const auto& one : sorted) {
    out.append(text_, done, one.at - done);
    out += one.text;
    done = one.at;
  }
  return out.append(text_, done);
}

}  // namespace fencegate::cli
