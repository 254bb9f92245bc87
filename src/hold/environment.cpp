#include "hold/environment.hpp"

#include "base/ascii.hpp"
#include "base/limits.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace fencegate::hold {

namespace {

constexpr std::string_view token_prefix = "FENCING_TOKEN_";
constexpr std::string_view tokens_setting = "fencing.tokens";

bool is_ours(std::string_view name) {
  static constexpr std::array<std::string_view, 6> names = {"FENCING_TOKEN", "FENCING_RESOURCE", "FENCE_TAG",
                                                            "PGOPTIONS",     "FENCEGATE_LEASE",  "FENCEGATE_SOCKET"};
  return name.starts_with(token_prefix) || std::ranges::find(names, name) != names.end();
}

// PGHOSTADDR, and the host of a service, would win over PGHOST.
bool names_a_server(std::string_view name) {
  return name == "PGHOST" || name == "PGHOSTADDR" || name == "PGPORT" || name == "PGSERVICE";
}

// The first one counts, as for getenv().
std::optional<std::string_view> value_of(const std::vector<std::string>& environment, std::string_view name) {
  for (const std::string_view one : environment) {
    if (one.size() > name.size() && one.starts_with(name) && one[name.size()] == '=')
      return one.substr(name.size() + 1);
  }
  return std::nullopt;
}

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// As the server splits them (pg_split_opts), and as they stand there.
std::vector<std::string> words_of(std::string_view options) {
  std::vector<std::string> out;
  std::string word;
  bool escaped = false;
  for (const char c : options) {
    if (!escaped && is_blank(c)) {
      if (!word.empty()) out.push_back(std::exchange(word, {}));
      continue;
    }
    word += c;
    escaped = !escaped && c == '\\';
  }
  if (escaped) word.pop_back();  // it would escape the blank that comes next; the server drops it
  if (!word.empty()) out.push_back(word);
  return out;
}

bool sets_tokens(std::string_view setting) {
  if (setting.size() <= tokens_setting.size() || setting[tokens_setting.size()] != '=') return false;
  return std::ranges::equal(setting.substr(0, tokens_setting.size()), tokens_setting,
                            [](char a, char b) { return ascii_lower(a) == b; });
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (is_blank(c) || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

result<std::string> options_of(std::string_view inherited, std::string_view tag) {
  const std::vector<std::string> words = words_of(inherited);
  std::string out;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "--") return error{"PGOPTIONS has \"--\", behind which PostgreSQL would not see fencing.tokens"};
    // The outer hold's.
    if (word == "-c" && i + 1 < words.size() && sets_tokens(words[i + 1])) {
      ++i;
      continue;
    }
    if ((word.starts_with("-c") || word.starts_with("--")) && sets_tokens(word.substr(2))) continue;
    out += word;
    out += ' ';
  }
  out += "-c ";
  out += tokens_setting;
  out += '=' + escaped(tag);
  return {boost::system::in_place_value, std::move(out)};
}

struct nested_tag {
  fence::claims_list held;
  std::string text;
};

result<nested_tag> with_outer(const grant& own, std::optional<std::string_view> outer, bool gate_outside) {
  if (!outer || outer->empty()) return nested_tag{own.held, own.tag};
  if (own.gate || gate_outside)
    return error{
        "a private gate carries the tokens of one hold alone, and an outer hold has others (FENCE_TAG): "
        "hold all resources at once"};
  auto held = fence::parse_tag(*outer);
  if (!held) return error{"FENCE_TAG, which hold was started with: " + held.error().message};
  for (const fence::claim& one : own.held) {
    if (std::ranges::find(*held, one.resource, &fence::claim::resource) != held->end()) {
      return error{"an outer hold has \"" + one.resource + "\" already (FENCE_TAG)"};
    }
  }
  held->insert(held->end(), own.held.begin(), own.held.end());
  if (held->size() > limits::tag_resources_max) {
    return error{"with those of the outer hold, these are more than " + std::to_string(limits::tag_resources_max) +
                 " resources (FENCE_TAG)"};
  }
  return nested_tag{std::move(*held), std::string(*outer) + ',' + own.tag};
}

}  // namespace

std::string token_variable(std::string_view resource) {
  std::string out(token_prefix);
  for (const char c : resource) {
    const char lower = ascii_lower(c);
    if (lower >= 'a' && lower <= 'z') {
      out += static_cast<char>(lower - 'a' + 'A');
    } else {
      out += c >= '0' && c <= '9' ? c : '_';
    }
  }
  return out;
}

result<std::vector<std::string>> environment_of(const grant& own, const std::vector<std::string>& inherited) {
  auto tag = with_outer(own, value_of(inherited, "FENCE_TAG"), value_of(inherited, "FENCEGATE_SOCKET").has_value());
  if (!tag) return tag.error();
  auto options = options_of(value_of(inherited, "PGOPTIONS").value_or(""), tag->text);
  if (!options) return options.error();

  std::vector<std::string> out;
  for (const std::string& one : inherited) {
    const auto name = std::string_view(one).substr(0, one.find('='));
    const bool replaced = own.gate && own.gate->of_postgres && names_a_server(name);
    if (!is_ours(name) && !replaced) out.push_back(one);
  }
  const auto add = [&out](std::string name, std::string_view value) { out.push_back((name += '=').append(value)); };
  if (own.held.size() == 1) {
    add("FENCING_TOKEN", own.held.front().presented.to_string());
    add("FENCING_RESOURCE", own.held.front().resource);
  }
  std::map<std::string, std::string> resource_of;
  for (const fence::claim& one : tag->held) {
    const std::string name = token_variable(one.resource);
    const auto [other, is_new] = resource_of.emplace(name, one.resource);
    if (!is_new) {
      return error{"\"" + other->second + "\" and \"" + one.resource + "\" would have the same variable, " + name};
    }
    add(name, one.presented.to_string());
  }
  add("FENCE_TAG", tag->text);
  add("PGOPTIONS", *options);
  add("FENCEGATE_LEASE", own.id);
  if (!own.gate) return out;
  add("FENCEGATE_SOCKET", own.gate->path());
  if (own.gate->of_postgres) {
    add("PGHOST", own.gate->folder);
    add("PGPORT", private_socket::port);
  }
  return out;
}

}  // namespace fencegate::hold
