#include "client/command_texts.hpp"
#include "client/command_tree.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace fencegate::client {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const auto& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

// "fencegate-hold lease" as a part of a function's name.
std::string function_of(const CLI::App& app) {
  auto out = "_" + path_of(app);
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c == ' ' || c == '-'; }, '_');
  return out;
}

// One branch of the `case` for a word, and for all below it. `below`: "", or " lease" and so on.
void add_bash_branches(std::string& out, const CLI::App& app, const std::string& below) {
  std::vector<std::string> words, with_value, names;
  for (const auto* one : words_of(app)) words.push_back(one->get_name());
  for (const auto* one : options_of(app)) {
    const auto of = names_of(*one);
    names.insert(names.end(), of.begin(), of.end());
    if (takes_value(*one)) with_value.insert(with_value.end(), of.begin(), of.end());
  }
  out += "    '" + below + "') words='" + joined(words) + "' options='" + joined(names) + "' valued=' " +
         joined(with_value) + " ' ;;\n";
  for (const auto* one : words_of(app)) add_bash_branches(out, *one, below + " " + one->get_name());
}

// Where no word fits, as for a value, bash offers names of files.
std::string for_bash(const CLI::App& app) {
  const auto function = function_of(app);
  std::string out = "# Completion of " + app.get_name() + " in bash.\n\n" + function + "_words() {\n  case $1 in\n";
  add_bash_branches(out, app, "");
  out += "    *) return 1 ;;\n  esac\n}\n\n" + function + R"(() {
  local words options valued path='' at word=${COMP_WORDS[COMP_CWORD]}
  COMPREPLY=()
  for ((at = 1; at < COMP_CWORD; at++)); do
    if [[ ${COMP_WORDS[at]} == -- ]]; then
      ((at + 1 < COMP_CWORD)) || mapfile -t COMPREPLY < <(compgen -c -- "$word")
      return
    fi
    )" + function +
         R"(_words "$path ${COMP_WORDS[at]}" && path+=" ${COMP_WORDS[at]}"
  done
  )" + function +
         R"(_words "$path"
  [[ $valued == *" ${COMP_WORDS[COMP_CWORD - 1]} "* ]] && return
  [[ $word == -* ]] && words=$options
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}

complete -o bashdefault -o default -F )" +
         function + " " + app.get_name() + "\n";
  return out;
}

// In single quotes; what else _arguments would read as its own is behind a backslash.
std::string zsh_text(std::string_view text) {
  std::string out;
  for (const char one : text) {
    if (one == '\'')
      out += "'\\''";
    else if (one == '[' || one == ']' || one == ':' || one == '\\')
      out += std::string("\\") + one;
    else
      out += one;
  }
  return out;
}

void add_zsh_function(std::string& out, const CLI::App& app) {
  const auto words = words_of(app);
  out += function_of(app) + "() {\n  local state line\n  local -a words_here\n  _arguments -S" +
         (words.empty() ? "" : " -C");
  for (const auto* one : options_of(app))
    for (const auto& name : names_of(*one)) {
      out += " \\\n    '" + name + "[" + zsh_text(one->get_description()) + "]";
      if (takes_value(*one)) out += ":" + zsh_text(value_of(*one)) + ":_files";
      out += "'";
    }
  if (words.empty()) {
    for (const auto* one : arguments_of(app)) {
      const bool many = one->get_items_expected_max() > 1;
      out += std::string(" \\\n    '") + (many ? "*" : "") + ":" + zsh_text(one->get_name(true)) + ":_files'";
    }
    out += "\n}\n\n";
    return;
  }
  out += " \\\n    '1: :->word' \\\n    '*:: :->rest'\n  words_here=(";
  for (const auto* one : words) out += "\n    '" + one->get_name() + ":" + zsh_text(one->get_description()) + "'";
  out += ")\n  case $state in\n    word) _describe word words_here ;;\n    rest)\n      case $line[1] in\n";
  for (const auto* one : words) out += "        " + one->get_name() + ") " + function_of(*one) + " ;;\n";
  out += "      esac ;;\n  esac\n}\n\n";
  for (const auto* one : words) add_zsh_function(out, *one);
}

std::string for_zsh(const CLI::App& app) {
  std::string out = "#compdef " + app.get_name() + "\n# Completion of " + app.get_name() + " in zsh.\n\n";
  add_zsh_function(out, app);
  return out + function_of(app) + " \"$@\"\n";
}

}  // namespace

std::string completion_of(const CLI::App& app, shell whose) {
  return whose == shell::bash ? for_bash(app) : for_zsh(app);
}

void add_text_words(CLI::App& app, text_words& to) {
  to.manual = app.add_subcommand("manual", "Print the manual page, for man -l -");
  to.completion = app.add_subcommand("completion", "Print what completes its words in a shell");
  const std::map<std::string, shell> shells{{"bash", shell::bash}, {"zsh", shell::zsh}};
  to.completion->add_option("SHELL", to.whose, "bash or zsh")
      ->required()
      ->transform(CLI::CheckedTransformer(shells).description(""));
}

std::optional<std::string> text_asked(const CLI::App& app, const text_words& given,
                                      std::span<const manual_section> more) {
  if (given.manual->parsed()) return manual_of(app, more);
  if (given.completion->parsed()) return completion_of(app, given.whose);
  return std::nullopt;
}

}  // namespace fencegate::client
