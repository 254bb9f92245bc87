#include "backend/pg_dial.hpp"

#include <boost/asio/ip/tcp.hpp>

#include <utility>

namespace fencegate::backend {

using tcp = boost::asio::ip::tcp;

namespace {

const char* sslmode_of(settings::tls::check checks) {
  switch (checks) {
    case settings::tls::check::none: return "disable";
    case settings::tls::check::nothing: return "require";
    case settings::tls::check::authority: return "verify-ca";
    case settings::tls::check::name: return "verify-full";
  }
  return "verify-full";
}

void add_tls(pg_link::parameters& how, const settings::tls& secured) {
  how.emplace_back("sslmode", sslmode_of(secured.checks));
  const auto add = [&](const char* name, const std::string& path) {
    if (!path.empty()) how.emplace_back(name, path);
  };
  add("sslrootcert", secured.authorities);
  add("sslcert", secured.certificate);
  add("sslkey", secured.key);
  add("sslcrl", secured.revoked);
}

}  // namespace

pg_link::parameters parameters_of(const pg_target& to, const std::vector<boost::asio::ip::address>& addresses) {
  pg_link::parameters how{{"dbname", to.database},
                          {"application_name", "fencegate"},
                          {"gssencmode", "disable"},
                          {"client_encoding", "UTF8"}};
  add_tls(how, to.secured);
  if (!to.login.user.empty()) how.emplace_back("user", to.login.user);
  if (auto password = to.login.password.text(); !password.empty()) how.emplace_back("password", std::move(password));
  if (to.where.is_unix()) {
    // libpq takes the folder and the port from which the file's name is made: …/.s.PGSQL.5432
    const auto& path = to.where.path;
    how.emplace_back("host", path.substr(0, path.rfind('/')));
    how.emplace_back("port", path.substr(path.rfind('.') + 1));
    return how;
  }
  std::string list, names;  // libpq tries one after the other; a certificate is for the name
  for (const auto& one : addresses) {
    list += (list.empty() ? "" : ",") + one.to_string();
    names += (names.empty() ? "" : ",") + to.where.host;
  }
  how.emplace_back("host", addresses.empty() ? to.where.host : names);
  if (!addresses.empty()) how.emplace_back("hostaddr", list);
  how.emplace_back("port", std::to_string(to.where.port));
  // A server that vanishes without a word is noticed within half a minute.
  how.emplace_back("keepalives_idle", "10");
  how.emplace_back("keepalives_interval", "5");
  how.emplace_back("keepalives_count", "3");
  how.emplace_back("tcp_user_timeout", "20000");
  return how;
}

void dial(boost::asio::io_context& context, const std::shared_ptr<pg_link>& link, const pg_target& to,
          std::function<void(const result<void>&)> done) {
  if (to.where.is_unix()) return link->connect(parameters_of(to, {}), std::move(done));
  auto resolver = std::make_shared<tcp::resolver>(context);
  auto on_resolved = [resolver, link, to, done = std::move(done)](const boost::system::error_code& failed,
                                                                  const tcp::resolver::results_type& found) mutable {
    if (failed) return done(error{"cannot resolve " + to.where.host + ": " + failed.message()});
    std::vector<boost::asio::ip::address> addresses;
    for (const auto& one : found) addresses.push_back(one.endpoint().address());
    link->connect(parameters_of(to, addresses), std::move(done));
  };
  resolver->async_resolve(to.where.host, std::to_string(to.where.port), tcp::resolver::numeric_service,
                          std::move(on_resolved));
}

}  // namespace fencegate::backend
