// Drives a store of an HTTP gate by lines, for tests/live/test_stores.py:
//   store_probe postgres USER DATABASE PORT POOL GRACE_MS        store_probe redis PORT
// Lines in and out are fields between tabs, the first names the request. "0" as deadline: ten seconds.
//   ID look DEADLINE_MS RESOURCE…        ID seal DEADLINE_MS TAG MAX_STEP        ID hold DEADLINE_MS TAG
//   ID run DEADLINE_MS TAG|read TAG|none WORD…  (postgres: SQL, then t:text, x:binary or n: for NULL)
//   `once TAG` in place of a tag: the tokens are spent.
//   ID alive | release | leave  (of a hold; leave: the session that asked is gone)
//
//   store_probe connect USER DATABASE PORT ADDRESS…   (one connection to a PostgreSQL server, at the first that has one)
// Says "link connected", or "link failed WHY".
#include "backend/pg_dial.hpp"
#include "backend/pg_store.hpp"
#include "backend/redis_store.hpp"

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>

#include <unistd.h>

#include <cstdlib>
#include <iostream>
#include <istream>
#include <map>
#include <thread>

namespace {

using namespace fencegate;
namespace asio = boost::asio;
using fields = std::vector<std::string>;

fields split(const std::string& line) {
  fields out(1);
  for (const char c : line) {
    if (c == '\t')
      out.emplace_back();
    else
      out.back() += c;
  }
  return out;
}

void say(const fields& words) {
  std::string line;
  for (const auto& word : words) line += (line.empty() ? "" : "\t") + word;
  for (char& c : line)
    if (c == '\n') c = ' ';
  std::cout << line << '\n' << std::flush;
}

std::string digits(const std::optional<fence::token>& t) { return t ? t->to_string() : ""; }

void say_rejected(const std::string& id, const fence::rejection& r) {
  say({id, "rejected", std::string(fence::terms_of(r.why).name), r.resource, digits(r.presented), digits(r.mark),
       r.detail});
}

std::string shown(const backend::redis_reply& reply) {
  std::string out = reply.null ? "(null)" : reply.text;
  for (const auto& one : reply.elements) out += "[" + shown(one) + "]";
  return out;
}

template <class Store>
class probe {
 public:
  probe(asio::io_context& io, std::shared_ptr<Store> store) : io_(io), store_(std::move(store)) {}

  void handle(const fields& f) {
    const auto& id = f[0];
    if (f[1] == "leave") {
      sessions_.erase(id);
      return say({id, "left"});
    }
    if (f[1] == "look")
      store_->look(caller(f), {f.begin() + 3, f.end()}, [id](auto found) {
        if (!found) return say_rejected(id, found.error());
        fields out{id, "found"};
        for (const auto& one : *found) out.push_back(one.resource + "=" + digits(one.mark));
        say(out);
      });
    else if (f[1] == "seal")
      store_->seal(caller(f), wanted(f[3], std::atoll(f[4].c_str())), [id](auto sealed) {
        if (!sealed) return say_rejected(id, sealed.error());
        fields out{id, "sealed"};
        for (const auto& one : *sealed)
          out.push_back(one.at.resource + "=" + digits(one.at.presented) + (one.raised ? "!" : ""));
        say(out);
      });
    else if (f[1] == "run")
      run(f);
    else
      hold(f);
  }

 private:
  backend::store_caller caller(const fields& f) {
    auto& session = sessions_[f[0]];
    if (session == nullptr) session = std::make_shared<int>(0);
    const int ms = std::atoi(f[2].c_str());
    return {io_, session, std::chrono::steady_clock::now() + std::chrono::milliseconds(ms == 0 ? 10'000 : ms)};
  }

  static std::vector<fence::claim> claims(const std::string& tag) { return fence::parse_tag(tag).value(); }

  // "read orders=34", "once orders=34", "none", or a tag.
  static backend::presented_claims wanted(const std::string& text, std::int64_t max_step = 0) {
    if (text == "none") return {};
    const bool read_only = text.starts_with("read "), spends = text.starts_with("once ");
    return {claims(read_only || spends ? text.substr(5) : text), max_step, read_only, spends};
  }

  void run(const fields& f);
  void hold(const fields& f);

  asio::io_context& io_;
  std::shared_ptr<Store> store_;
  std::map<std::string, std::shared_ptr<int>> sessions_;
  std::map<std::string, backend::held_marks> held_;
};

template <>
void probe<backend::pg_store>::run(const fields& f) {
  backend::pg_statement statement{f[4]};
  for (std::size_t i = 5; i < f.size(); ++i) {
    if (f[i].starts_with("n:"))
      statement.parameters.push_back({});
    else
      statement.parameters.push_back({f[i].substr(2), f[i].starts_with("x:")});
  }
  store_->run(caller(f), wanted(f[3]), std::move(statement), [id = f[0]](const backend::run_outcome& out) {
    using kind = backend::run_outcome::kind;
    if (out.what == kind::rejected) return say_rejected(id, out.why);
    if (out.what == kind::failed) return say({id, "failed", out.error.sqlstate, out.error.message, out.error.detail});
    if (out.what == kind::unknown) return say({id, "unknown", out.error.message});
    fields words{id, "done", out.table.affected ? std::to_string(*out.table.affected) : ""};
    for (const auto& column : out.table.columns) words.push_back(column.name + ":" + std::to_string(column.type));
    for (const auto& row : out.table.rows)
      for (const auto& value : row) words.push_back(value.value_or("(null)"));
    if (out.table.cut_off) words.emplace_back("cut off");
    say(words);
  });
}

template <>
void probe<backend::redis_store>::run(const fields& f) {
  store_->run(caller(f), wanted(f[3]), {f.begin() + 4, f.end()}, [id = f[0]](const auto& out) {
    using kind = backend::command_outcome::kind;
    if (out.what == kind::rejected) return say_rejected(id, out.why);
    if (out.what == kind::unknown) return say({id, "unknown", out.detail});
    say({id, out.what == kind::done ? "done" : "failed", shown(out.reply)});
  });
}

template <>
void probe<backend::pg_store>::hold(const fields& f) {
  const auto& id = f[0];
  const auto held = held_.find(id);
  if (f[1] == "alive") return say({id, "alive", held != held_.end() && held->second.alive() ? "yes" : "no"});
  if (f[1] == "release") {
    held_.erase(id);
    return say({id, "released"});
  }
  auto on_held = [this, id](backend::store_result<backend::held_marks> got) {
    if (!got) return say_rejected(id, got.error());
    held_.insert_or_assign(id, std::move(*got));
    say({id, "held"});
  };
  store_->hold(
      caller(f), wanted(f[3]),
      [id](const auto& why) {
        if (!why) say({id, "cut"});
      },
      std::move(on_held));
}

template <>
void probe<backend::redis_store>::hold(const fields& f) {
  say({f[0], "there is no such thing in Redis"});
}

template <class Store>
int serve(asio::io_context& store_io, const std::shared_ptr<Store>& store) {
  asio::io_context io(1);
  auto work = asio::make_work_guard(store_io);
  asio::post(store_io, [store] { store->start(); });
  std::thread thread([&store_io] { store_io.run(); });
  {
    probe<Store> driver(io, store);
    asio::posix::stream_descriptor input(io, dup(STDIN_FILENO));
    asio::streambuf buffer;
    std::function<void()> next = [&] {
      asio::async_read_until(input, buffer, '\n', [&](const boost::system::error_code& failed, std::size_t) {
        if (failed) return io.stop();
        std::istream lines(&buffer);
        std::string line;
        std::getline(lines, line);
        driver.handle(split(line));
        next();
      });
    };
    next();
    io.run();
    asio::post(store_io, [store, &store_io] { store->stop(store_io); });
  }
  asio::post(store_io, [&work] { work.reset(); });
  thread.join();
  return 0;
}

int connect(asio::io_context& io, const fields& arguments) {
  backend::pg_target to;
  to.login.user = arguments[2];
  to.database = arguments[3];
  to.where = {"localhost", static_cast<std::uint16_t>(std::atoi(arguments[4].c_str())), {}};
  std::vector<asio::ip::address> addresses;
  for (std::size_t i = 5; i < arguments.size(); ++i) addresses.push_back(asio::ip::make_address(arguments[i]));
  const auto link = std::make_shared<backend::pg_link>(io, std::chrono::seconds(20));
  link->connect(backend::parameters_of(to, addresses), [&io](const result<void>& done) {
    say(done ? fields{"link", "connected"} : fields{"link", "failed", done.error().message});
    io.stop();
  });
  io.run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv, argv + argc);
  metrics::gate stats("probe");
  settings::mark_store store;
  asio::io_context io(1);
  if (argc == 3 && arguments[1] == "redis") {
    store.where = {"127.0.0.1", static_cast<std::uint16_t>(std::atoi(argv[2])), {}};
    return serve(io, std::make_shared<backend::redis_store>(std::vector{&io}, "probe", store, stats));
  }
  if (argc >= 6 && arguments[1] == "connect") return connect(io, arguments);
  if (argc != 7) return 2;
  store.name = "ledger";
  store.speaks = settings::mark_store::kind::postgres;
  store.login.user = arguments[2];
  store.database = arguments[3];
  store.where = {"127.0.0.1", static_cast<std::uint16_t>(std::atoi(argv[4])), {}};
  store.pool = static_cast<std::size_t>(std::atoi(argv[5]));
  const std::chrono::milliseconds grace(std::atoi(argv[6]));
  return serve(io, std::make_shared<backend::pg_store>(io, "probe", store, grace, stats));
}
