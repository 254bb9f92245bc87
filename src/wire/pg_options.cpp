// The `options` parameter, read as the server reads it: pg_split_opts makes words, getopt makes switches of them
// (process_postgres_switches), ParseLongOption makes settings of `-c` and `--`.
#include "wire/pg_opening.hpp"

#include <algorithm>

namespace fencegate::wire {

namespace {

// The server's own list: a colon behind a switch means that it takes an argument.
constexpr std::string_view switches = "B:bc:C:D:d:EeFf:h:ijk:lN:nOPp:r:S:sTt:v:W:-:";

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

struct word {
  std::string_view raw;  // as it stands in the options
  std::string text;      // without the backslashes that escape
};

std::vector<word> split_words(std::string_view options) {
  std::vector<word> out;
  options = options.substr(0, options.find('\0'));
  for (std::size_t at = 0;;) {
    while (at < options.size() && is_blank(options[at])) {
      ++at;
    }
    if (at == options.size()) {
      return out;
    }
    const std::size_t begin = at;
    word next;
    bool escaped = false;
    for (; at < options.size() && (escaped || !is_blank(options[at])); ++at) {
      escaped = !escaped && options[at] == '\\';
      if (!escaped) {
        next.text += options[at];
      }
    }
    next.raw = options.substr(begin, at - begin);
    out.push_back(std::move(next));
  }
}

// The part of a raw word that holds the first `count` characters of its text.
std::string_view raw_prefix(std::string_view raw, std::size_t count) {
  std::size_t at = 0;
  for (; count > 0; --count) {
    at += raw[at] == '\\' ? 2 : 1;
  }
  return raw.substr(0, at);
}

std::string setting_name(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c == '-') {
      c = '_';
    } else if (c >= 'A' && c <= 'Z') {
      c = static_cast<char>(c - 'A' + 'a');
    }
  }
  return out;
}

// Where a setting stands: its switch in words[first] at text[at], its argument there too or in the next word.
struct place {
  std::size_t first = 0;
  std::size_t at = 0;
  std::size_t words = 1;
};

// Calls found(setting, place) for each setting, in order. Ends where the server refuses the rest and the connection.
template <class Found>
void each_setting(const std::vector<word>& words, Found found) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& text = words[i].text;
    if (text == "--") {
      return;
    }
    if (text.size() < 2 || text[0] != '-') {
      continue;  // no switch; getopt moves these behind all switches
    }
    for (std::size_t at = 1; at < text.size(); ++at) {
      const std::size_t known = text[at] == ':' ? std::string_view::npos : switches.find(text[at]);
      if (known == std::string_view::npos) {
        return;
      }
      if (known + 1 == switches.size() || switches[known + 1] != ':') {
        continue;  // takes no argument; more switches may follow in this word
      }
      const bool inside = at + 1 < text.size();
      if (!inside && i + 1 == words.size()) {
        return;
      }
      const std::string_view argument = inside ? std::string_view(text).substr(at + 1) : words[i + 1].text;
      const std::size_t equals = argument.find('=');
      if ((text[at] == 'c' || text[at] == '-') && equals != std::string_view::npos) {
        found(pg_option{.name = setting_name(argument.substr(0, equals)),
                        .value = std::string(argument.substr(equals + 1))},
              place{.first = i, .at = at, .words = inside ? std::size_t{1} : std::size_t{2}});
      }
      i += inside ? 0 : 1;
      break;
    }
  }
}

}  // namespace

std::vector<pg_option> pg_settings_in_options(std::string_view options) {
  std::vector<pg_option> out;
  const auto keep = [&out](pg_option setting, const place&) { out.push_back(std::move(setting)); };
  each_setting(split_words(options), keep);
  return out;
}

std::string pg_options_without(std::string_view options, std::string_view name) {
  const std::vector<word> words = split_words(options);
  std::vector<std::string_view> kept;
  kept.reserve(words.size());
  for (const word& w : words) {
    kept.push_back(w.raw);
  }
  const std::string unwanted = setting_name(name);
  each_setting(words, [&](const pg_option& setting, const place& where) {
    if (setting.name != unwanted) {
      return;
    }
    // Switches before it in the same word stay: `-ec a=b` leaves `-e`.
    kept[where.first] = where.at == 1 ? std::string_view{} : raw_prefix(words[where.first].raw, where.at);
    if (where.words == 2) {
      kept[where.first + 1] = {};
    }
  });
  std::string out;
  for (const std::string_view raw : kept) {
    if (!raw.empty()) {
      out += out.empty() ? "" : " ";
      out += raw;
    }
  }
  return out;
}

}  // namespace fencegate::wire
