#include "cli/doctor.hpp"

#include "base/json_text.hpp"
#include "cli/commands.hpp"

#include <ostream>
#include <utility>

namespace fencegate::cli {
namespace {

std::string count(std::size_t n, const std::string& thing) {
  return n == 0 ? "no " + thing + "s" : std::to_string(n) + " " + thing + (n == 1 ? "" : "s");
}

// Appends `"name":[…]`; `each` appends one element, or none, and says whether it did.
template <class All, class Each>
void add_array(std::string& out, json_object& to, std::string_view name, const All& all, const Each& each) {
  to.name(name);
  out += '[';
  bool first = true;
  for (const auto& one : all) each(one, first);
  out += ']';
}

void begin_element(std::string& out, bool& first) {
  if (!std::exchange(first, false)) out += ',';
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
  add_array(out, whole, "hazards", report.all, [&](const examined& one, bool& first) {
    for (const auto& hazard : one.found.hazards) {
      const auto& words = backend::words_of(hazard.kind);
      begin_element(out, first);
      json_object element(out);
      element.add("id", words.id);
      element.add("where", one.where);
      element.add("address", one.at);
      element.add("what", hazard.what);
      element.add("why", words.why);
      element.add("mend", words.mend);
      element.end();
    }
  });
  add_array(out, whole, "unknown", report.all, [&](const examined& one, bool& first) {
    for (const auto& fact : one.found.unknown) {
      begin_element(out, first);
      json_object element(out);
      element.add("where", one.where);
      element.add("address", one.at);
      element.add("what", fact.what);
      element.add("why", fact.why);
      element.end();
    }
  });
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
