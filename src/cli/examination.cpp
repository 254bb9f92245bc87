#include "cli/examination.hpp"

#include "backend/pg_facts.hpp"
#include "backend/redis_facts.hpp"
#include "backend/tls_files.hpp"
#include "base/log.hpp"
#include "cli/certificates.hpp"
#include "cli/mark_places.hpp"

#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>

#include <algorithm>
#include <ctime>
#include <iterator>
#include <utility>

namespace fencegate::cli {
namespace {

using backend::hazard_kind;

bool is_loopback(const settings::address& at) {
  if (at.is_unix() || at.host == "localhost") return true;
  boost::system::error_code failed;
  const auto address = boost::asio::ip::make_address(at.host, failed);
  return !failed && address.is_loopback();
}

// Of two places that are one for all that is asked: which user asks counts.
std::string identity_of(const settings::process& config, const std::string& place) {
  const auto at = postgres_at(config, place);
  const auto user = at ? at->at.login.user : redis_at(config, place).login.user;
  return (at ? "postgres " : "redis ") + address_of(config, place) + " " + user;
}

}  // namespace

std::size_t hazard_report::hazards() const {
  std::size_t out = 0;
  for (const auto& one : all) out += one.found.hazards.size();
  return out;
}

std::size_t hazard_report::unknown() const {
  std::size_t out = 0;
  for (const auto& one : all) out += one.found.unknown.size();
  return out;
}

std::string hazard_report::unreached() const {
  std::vector<std::string> out;
  for (const auto& one : all)
    if (one.found.unreached) out.push_back(one.where);
  return backend::some_of(out);
}

std::vector<examined> examine_listeners(const settings::process& config) {
  std::vector<examined> out;
  const auto look = [&](const std::string& where, const settings::address& listen, hazard_kind kind,
                        std::string_view how = {}) {
    if (is_loopback(listen)) return;
    const auto at = settings::to_string(listen);
    out.push_back({where, at, {{{kind, "it listens on " + at + std::string(how)}}, {}, false}});
  };
  const auto asks_for_proof = [](const settings::listener_tls& shown) {
    return !shown.client_ca.empty() && shown.client_required;
  };
  if (config.admin_enabled && !asks_for_proof(config.admin_shown))
    look("admin", config.admin, hazard_kind::admin_exposed);
  const auto look_at_all = [&](const auto& gates) {
    for (const auto& one : gates) {
      if (asks_for_proof(one.shown)) continue;
      look("gate:" + one.name, one.listen, hazard_kind::gate_exposed,
           one.shown.wanted() ? ", and requires no certificate of its clients" : ", in plain text");
    }
  };
  look_at_all(config.redis_gates);
  look_at_all(config.postgres_gates);
  look_at_all(config.http_gates);
  return out;
}

std::vector<examined> examine_certificates(const settings::process& config) {
  std::vector<examined> out;
  const auto now = std::time(nullptr);
  for (const auto& [where, path] : certificates_of(config))
    if (const auto problem = backend::validity_problem(path, now); !problem.empty())
      out.push_back({where, path, {{{hazard_kind::certificate_expires, problem}}, {}, false}});
  return out;
}

void examination::start(std::function<void(const hazard_report&)> done) {
  done_ = std::move(done);
  report_.all = examine_listeners(config_);
  std::ranges::move(examine_certificates(config_), std::back_inserter(report_.all));
  std::vector<std::pair<std::string, std::size_t>> known;  // identity, row
  std::vector<std::pair<std::string, std::size_t>> asked;  // place, row
  for (const auto& place : all_places(config_)) {
    const auto identity = identity_of(config_, place);
    const auto same = std::find_if(known.begin(), known.end(), [&](const auto& one) { return one.first == identity; });
    if (same != known.end()) {
      report_.all[same->second].where += ", " + place;
      continue;
    }
    known.emplace_back(identity, report_.all.size());
    asked.emplace_back(place, report_.all.size());
    report_.all.push_back({place, address_of(config_, place), {}});
  }
  unanswered_ = asked.size() + 1;
  for (const auto& [place, row] : asked) ask(place, row);
  boost::asio::post(context_, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self && --self->unanswered_ == 0) self->done_(self->report_);
  });
}

void examination::ask(const std::string& place, std::size_t row) {
  auto done = [weak = weak_from_this(), row](const backend::findings& found) {
    if (const auto self = weak.lock()) self->answered(row, found);
  };
  if (auto at = postgres_at(config_, place)) {
    const auto question = std::make_shared<backend::pg_facts_question>(context_, std::move(at->at), at->connect);
    questions_.push_back(question);
    return question->ask(std::move(done));
  }
  const auto at = redis_at(config_, place);
  const auto question =
      std::make_shared<backend::redis_facts_question>(context_, at.where, at.secured, at.login, at.connect);
  questions_.push_back(question);
  question->ask(std::move(done));
}

void examination::answered(std::size_t row, const backend::findings& found) {
  report_.all[row].found = found;
  if (--unanswered_ == 0) done_(report_);
}

hazard_report examine(const settings::process& config) {
  boost::asio::io_context alone{1};
  hazard_report out;
  const auto all = std::make_shared<examination>(alone, config);
  all->start([&](const hazard_report& report) {
    out = report;
    alone.stop();
  });
  alone.run();
  return out;
}

result<void> judge_strictly(const hazard_report& report) {
  if (const auto hazards = report.hazards(); hazards > 0)
    return error{"strict: true, and there " +
                 (hazards == 1 ? "is 1 hazard" : "are " + std::to_string(hazards) + " hazards")};
  if (const auto servers = report.unreached(); !servers.empty())
    return error{"strict: true, and it is not known what is hazardous in " + servers};
  return {};
}

void log_hazards(const hazard_report& report) {
  for (const auto& one : report.all) {
    for (const auto& hazard : one.found.hazards) {
      const auto& words = backend::words_of(hazard.kind);
      log::write(log::level::warn, "hazard",
                 {{"id", words.id},
                  {"where", one.where},
                  {"address", one.at},
                  {"detail", hazard.what},
                  {"why", words.why},
                  {"mend", words.mend}});
    }
    for (const auto& fact : one.found.unknown)
      log::write(log::level::info, "hazards are not known",
                 {{"where", one.where}, {"address", one.at}, {"detail", fact.what}, {"why", fact.why}});
  }
}

}  // namespace fencegate::cli
