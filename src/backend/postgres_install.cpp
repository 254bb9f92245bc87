#include "backend/postgres_install.hpp"

#include "backend/libpq.hpp"
#include "fence/printable.hpp"

#include <algorithm>
#include <array>
#include <memory>

namespace fencegate::backend {
namespace {

constexpr std::size_t message_bytes_max = 1'000;

using connection = std::unique_ptr<PGconn, decltype(&PQfinish)>;
using result_owner = std::unique_ptr<PGresult, decltype(&PQclear)>;

// Whatever standard_conforming_strings is: all of a message is parsed before the first statement of it runs. (An object, so
// that nobody means std::quoted.)
constexpr auto quoted = [](std::string_view text) {
  std::string out = text.find('\\') == std::string_view::npos ? "'" : "E'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += c;
    out += c;
  }
  return out + "'";
};

// A table's name is looked up as its user writes it, but the type is not, which could be anybody's.
std::string table(std::string_view name) { return quoted(name) + "::pg_catalog.regclass"; }

std::string shown(const char* text) {
  if (text == nullptr) return {};
  std::string line(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return fence::printable(line, message_bytes_max);
}

std::string words_of(const PGconn* server, const PGresult* failed) {
  std::string text = shown(pq().PQresultErrorField(failed, PG_DIAG_MESSAGE_PRIMARY));
  if (text.empty()) return shown(pq().PQerrorMessage(server));
  const std::string hint = shown(pq().PQresultErrorField(failed, PG_DIAG_MESSAGE_HINT));
  return hint.empty() ? text : text + " (" + hint + ")";
}

connection connect(const postgres_place& place) {
  auto how = parameters_of(place.at, {});
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(place.connect_timeout).count();
  how.emplace_back("connect_timeout", std::to_string(seconds));
  how.emplace_back("application_name", "fencegate install");  // in place of the other
  std::vector<const char*> names, values;
  for (const auto& [name, value] : how) {
    names.push_back(name.c_str());
    values.push_back(value.c_str());
  }
  names.push_back(nullptr);
  values.push_back(nullptr);
  return {pq().PQconnectdbParams(names.data(), values.data(), 0), pq().PQfinish};
}

}  // namespace

std::string to_string(const postgres_place& place) {
  const auto& at = place.at.where;
  const bool ipv6 = at.host.find(':') != std::string::npos;
  const std::string host = ipv6 ? "[" + at.host + "]" : at.host;
  const std::string server = at.is_unix() ? at.path : host + ":" + std::to_string(at.port);
  return fence::printable(server + "/" + place.at.database, message_bytes_max);
}

std::string install_script(const postgres_installation& what) {
  std::string script = "SET client_encoding = 'UTF8';\n";  // as the configuration and the arguments are
  if (what.limits) {
    script += "SET fencegate.new_max_step = " + quoted(std::to_string(what.limits->max_step)) + ";\n";
    script += "SET fencegate.new_cut_ms = " + quoted(std::to_string(what.limits->cut_timeout.count())) + ";\n";
    if (const auto grace = what.limits->hold_grace)
      script += "SET fencegate.new_grace_ms = " + quoted(std::to_string(grace->count())) + ";\n";
  }
  script += "SET fencegate.new_gate_user = " + quoted(what.gate_user) + ";\n\n";
  script += postgres_schema();
  script +=
      "\nRESET fencegate.new_max_step;\nRESET fencegate.new_cut_ms;\nRESET fencegate.new_grace_ms;\nRESET "
      "fencegate.new_gate_user;\n";
  for (const auto& name : what.unprotect) script += "SELECT fencegate.unprotect(" + table(name) + ");\n";
  const std::string resource = what.resource.empty() ? "NULL" : quoted(what.resource);
  for (const auto& name : what.protect) script += "SELECT fencegate.protect(" + table(name) + ", " + resource + ");\n";
  return script;
}

result<void> install(const postgres_place& place, postgres_installation what) {
  if (const auto& loaded = load_libpq(); !loaded) return loaded.error();
  const connection server = connect(place);
  if (pq().PQstatus(server.get()) != CONNECTION_OK)
    return error{"cannot connect: " + shown(pq().PQerrorMessage(server.get()))};
  pq().PQsetNoticeProcessor(
      server.get(), [](void*, const char*) {}, nullptr);
  if (what.gate_user.empty()) what.gate_user = pq().PQuser(server.get());
  // One message: behind a transaction pooler the parts of several could run on different servers.
  const result_owner got(pq().PQexec(server.get(), install_script(what).c_str()), pq().PQclear);
  const auto status = pq().PQresultStatus(got.get());
  if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) return error{words_of(server.get(), got.get())};
  return {};
}

}  // namespace fencegate::backend
