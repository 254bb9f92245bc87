#include "client/command_texts.hpp"
#include "client/command_tree.hpp"
#include "hold/exit_status.hpp"

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <vector>

namespace fencegate::client {
namespace {

// man(7) reads backslashes, and a point or an apostrophe at the begin of a line; a bare hyphen may become another sign.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char one : text) {
    const bool at_begin = out.empty() || out.back() == '\n';
    if (at_begin && (one == '.' || one == '\'')) out += "\\&";
    if (one == '\\')
      out += "\\e";
    else if (one == '-')
      out += "\\-";
    else
      out += one;
  }
  return out;
}

std::string bold(std::string_view text) { return "\\fB" + escaped(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + escaped(text) + "\\fR"; }

// "--wait": for another option, where one excludes the other.
std::string list_of(const std::set<CLI::Option*>& options) {
  std::vector<std::string> names;
  names.reserve(options.size());
  for (const auto* one : options)
    names.push_back(bold(names_of(*one).empty() ? one->get_name(true) : names_of(*one).back()));
  std::sort(names.begin(), names.end());
  std::string out;
  for (const auto& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

std::string argument_text(const CLI::Option& one) {
  const auto name = italic(one.get_name(true)) + (one.get_items_expected_max() > 1 ? "..." : "");
  return one.get_required() ? name : "[" + name + "]";
}

void add_option(std::string& out, const CLI::Option& one) {
  out += ".TP\n";
  std::string names;
  for (const auto& name : names_of(one)) names += (names.empty() ? "" : ", ") + bold(name);
  out += names.empty() ? italic(one.get_name(true)) : names;
  if (!names.empty() && takes_value(one)) out += " " + italic(value_of(one));
  out += "\n" + escaped(one.get_description()) + ".";
  if (!names.empty() && one.get_required()) out += " Required.";
  if (!one.get_default_str().empty()) out += " Default: " + escaped(one.get_default_str()) + ".";
  if (!one.get_excludes().empty()) out += " Not with " + list_of(one.get_excludes()) + ".";
  if (!one.get_needs().empty()) out += " Only with " + list_of(one.get_needs()) + ".";
  out += "\n";
}

void add_word(std::string& out, const CLI::App& word) {
  if (words_of(word).empty()) {
    out += ".SS " + escaped(path_of(word)) + "\n" + bold(path_of(word)) + " [" + italic("OPTIONS") + "]";
    for (const auto* one : options_of(word))
      if (one->get_required()) out += " " + bold(names_of(*one).front()) + " " + italic(value_of(*one));
    for (const auto* one : arguments_of(word)) out += " " + argument_text(*one);
    out += "\n.PP\n" + escaped(word.get_description()) + ".\n";
    for (const auto* one : arguments_of(word)) add_option(out, *one);
    for (const auto* one : options_of(word))
      if (one != word.get_help_ptr()) add_option(out, *one);
  }
  for (const auto* below : words_of(word)) add_word(out, *below);
}

std::string section_text(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const auto end = std::min(text.find("\n\n"), text.size());
    const auto paragraph = text.substr(0, end);
    text.remove_prefix(std::min(end + 2, text.size()));
    const auto tag = paragraph.find("\t\n");
    if (tag == std::string_view::npos)
      out += ".PP\n" + escaped(paragraph) + "\n";
    else
      out += ".TP\n" + bold(paragraph.substr(0, tag)) + "\n" + escaped(paragraph.substr(tag + 2)) + "\n";
  }
  return out;
}

}  // namespace

std::string manual_of(const CLI::App& app, std::span<const manual_section> more) {
  auto title = app.get_name();
  std::transform(title.begin(), title.end(), title.begin(), [](unsigned char c) { return std::toupper(c); });
  const auto described = app.get_description().substr(app.get_name().size() + 2);
  std::string out = ".TH \"" + escaped(title) + "\" 1 \"\" \"" + app.get_name() + " " FENCEGATE_VERSION "\"\n";
  out += ".SH NAME\n" + escaped(app.get_name()) + " \\- " + escaped(described) + "\n.SH SYNOPSIS\n";
  out += bold(app.get_name()) + " " + italic("COMMAND") + " [" + italic("OPTIONS") + "]\n.PP\n";
  out += bold(app.get_name() + " COMMAND --help") + ", " + bold(app.get_name() + " --version") + "\n.SH COMMANDS\n";
  for (const auto* word : words_of(app)) add_word(out, *word);
  for (const auto& section : more) out += ".SH " + escaped(section.title) + "\n" + section_text(section.text);
  return out;
}

manual_section statuses_of_hold() {
  using hold::outcome;
  std::string text = "Of hold, and of lease acquire, renew and release:\n\n";
  const auto add = [&](const std::string& status, std::string_view what) {
    text += status + "\t\n" + std::string(what) + "\n\n";
  };
  const auto add_of = [&](outcome of, std::string_view what) { add(std::to_string(ending_of(of).status), what); };
  add("the command's own", "It ended by itself; 128 and the number of the signal, when a signal ended it.");
  add_of(outcome::unreachable, "Who grants the lease, or a place to seal, was not reached.");
  add_of(outcome::busy, "Another one holds the lease; --busy-exit sets another status.");
  add_of(outcome::lost, "The lease was lost while the command ran.");
  add_of(outcome::max_run, "The command was ended by --max-run.");
  add_of(outcome::error, "An error of hold itself, or of its arguments.");
  add("126, 127", "The command cannot be executed, or was not found.");
  return {"EXIT STATUS", text};
}

}  // namespace fencegate::client
