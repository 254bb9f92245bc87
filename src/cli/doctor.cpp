#include "cli/doctor.hpp"

#include "base/json_text.hpp"
#include "cli/commands.hpp"

#include <initializer_list>
#include <ostream>
#include <string_view>
#include <utility>

namespace fencegate::cli {
namespace {

std::string count(std::size_t n, const std::string& thing) {
  return n == 0 ? "no " + thing + "s" : std::to_string(n) + " " + thing + (n == 1 ? "" : "s");
}

// One object of an array: what it says in texts, by their names.
void add_element(std::string& out, std::initializer_list<std::pair<std::string_view, std::string_view>> texts) {
  if (out.back() != '[') out += ',';
  json_object element(out);
  for (const auto& [name, text] : texts) element.add(name, text);
  element.end();
}

}  // namespace

void print_hazards(const hazard_report& report, std::ostream& out) {
  for (const auto& one : report.all) {
    const auto where = one.where + " (" + one.at + "): ";
    for (const auto& hazard : one.found.hazards) {
      const auto& words = backend::words_of(hazard.kind);
      out << where << words.id << ": " << hazard.what << "\n  Why it matters: " << words.why
          << "\n  How to mend it: " << words.mend << "\n\n";
    }
    for (const auto& fact : one.found.unknown)
      out << where << "not known: " << fact.what << ", because " << fact.why << "\n\n";
  }
}

std::string json_of(const hazard_report& report) {
  std::string out;
  json_object whole(out);
  whole.name("hazards");
  out += '[';
  for (const auto& one : report.all)
    for (const auto& hazard : one.found.hazards) {
      const auto& words = backend::words_of(hazard.kind);
      add_element(out, {{"id", words.id},
                        {"where", one.where},
                        {"address", one.at},
                        {"what", hazard.what},
                        {"why", words.why},
                        {"mend", words.mend}});
    }
  out += ']';
  whole.name("unknown");
  out += '[';
  for (const auto& one : report.all)
    for (const auto& fact : one.found.unknown)
      add_element(out, {{"where", one.where}, {"address", one.at}, {"what", fact.what}, {"why", fact.why}});
  out += ']';
  whole.end();
  return out;
}

int doctor(const std::string& path, bool json, const environment& from, std::ostream& out, std::ostream& err) {
  const auto config = load_config(path, from);
  if (!config) {
    print_errors(config.error(), err);
    return exit_bad_configuration;
  }
  const auto report = examine(*config);
  if (json)
    out << json_of(report) << '\n';
  else
    print_hazards(report, out);
  const auto hazards = report.hazards(), unknown = report.unknown();
  if (!json)
    out << path << ": " << count(hazards, "hazard")
        << (unknown == 0 ? "" : ", and " + count(unknown, "thing") + " that could not be found out") << '\n';
  return hazards > 0 ? exit_failed : unknown > 0 ? exit_not_known : exit_ok;
}

}  // namespace fencegate::cli
