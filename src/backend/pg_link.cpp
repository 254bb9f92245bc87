#include "backend/pg_link.hpp"

#include "backend/libpq.hpp"
#include "backend/pg_said.hpp"
#include "backend/taken_bytes.hpp"
#include "base/limits.hpp"

#include <boost/asio/post.hpp>
#include <sys/ioctl.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

namespace fencegate::backend {
namespace {

using descriptor = boost::asio::posix::stream_descriptor;

wire::pg_error trouble(std::string what) { return {"FATAL", {}, std::move(what), {}, {}}; }

// What a transaction of so many statements answers. Behind the last one's answer, its commit may have failed.
pg_result rows_of(pg_outcome& outcome, std::size_t statements) {
  auto& steps = outcome.steps;
  if (!steps.empty() && steps.back().has_error()) {
    auto e = steps.back().error();
    e.severity = "ERROR";
    return e;
  }
  if (!outcome.lost.empty()) return trouble(outcome.lost);
  if (steps.size() != statements) return trouble("the server gave no answer");
  return std::move(steps.back()->rows);
}

}  // namespace

pg_statement in_text(std::string sql, std::vector<std::string> arguments) {
  pg_statement one{std::move(sql)};
  for (auto& argument : arguments) one.parameters.push_back({std::move(argument)});
  return one;
}

pg_link::pg_link(boost::asio::io_context& context, std::chrono::milliseconds patience)
    : context_(context), patience_(patience), descriptor_(context), deadline_(context) {}

pg_link::~pg_link() {
  let_socket_go();
  if (connection_ != nullptr) pq().PQfinish(connection_);
}

void pg_link::connect(const parameters& how, std::function<void(const result<void>&)> done) {
  ++era_;
  on_connected_ = std::move(done);
  grew_ = false;
  unparsed_ = 0;
  parsed_ = 0;
  if (const auto& loaded = load_libpq(); !loaded) return close(loaded.error().message);
  std::vector<const char*> keywords, values;
  for (const auto& [keyword, value] : how) {
    keywords.push_back(keyword.c_str());
    values.push_back(value.c_str());
  }
  keywords.push_back(nullptr);
  values.push_back(nullptr);
  connection_ = pq().PQconnectStartParams(keywords.data(), values.data(), 0);
  if (connection_ == nullptr) return close("out of memory");
  if (pq().PQstatus(connection_) == CONNECTION_BAD) return close(first_line(pq().PQerrorMessage(connection_)));
  restart_deadline(patience_);
  watch(descriptor::wait_write, &pg_link::go_on_connecting);
}

void pg_link::go_on_connecting() {
  let_socket_go();  // libpq may go on with another one, under the same number even
  switch (pq().PQconnectPoll(connection_)) {
    case PGRES_POLLING_READING: return watch(descriptor::wait_read, &pg_link::go_on_connecting);
    case PGRES_POLLING_WRITING: return watch(descriptor::wait_write, &pg_link::go_on_connecting);
    case PGRES_POLLING_OK: break;
    default: return close(first_line(pq().PQerrorMessage(connection_)));
  }
  connected_ = true;
  deadline_.cancel();
  pq().PQsetnonblocking(connection_, 1);
  // Statements may raise notices; only what ends the session is of interest.
  auto on_notice = [](void* self, const PGresult* notice) {
    if (ends_the_session(notice)) static_cast<pg_link*>(self)->farewell_ = error_of(notice).message;
  };
  pq().PQsetNoticeReceiver(connection_, on_notice, this);
  if (pq().PQenterPipelineMode(connection_) != 1) return close("no pipeline mode");
  if (auto done = std::exchange(on_connected_, nullptr)) done({});
  send_next();
  read_on();
}

void pg_link::watch(descriptor::wait_type until, void (pg_link::*then)()) {
  const int socket = pq().PQsocket(connection_);
  if (socket < 0) return close("the connection was lost");
  if (!descriptor_.is_open())
    if (const auto failed = take_socket(socket)) return close(failed.message());
  auto on_ready = [self = shared_from_this(), era = era_, then](const boost::system::error_code& failed) {
    if (era != self->era_ || failed == boost::asio::error::operation_aborted) return;
    if (failed) return self->close(failed.message());
    (self.get()->*then)();
  };
  descriptor_.async_wait(until, on_ready);
}

// libpq closes its socket without a word, when the server has ended the connection for example. Asio would then take a
// number out of its epoll that another thread may have got meanwhile; so it has a descriptor of its own.
boost::system::error_code pg_link::take_socket(int socket) {
  boost::system::error_code failed;
  const int own = fcntl(socket, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return {errno, boost::system::system_category()};
  descriptor_.assign(own, failed);
  if (failed) ::close(own);
  return failed;
}

void pg_link::let_socket_go() {
  boost::system::error_code ignored;
  descriptor_.close(ignored);
}

void pg_link::query(std::string sql, std::vector<std::string> arguments, pg_answer done) {
  transaction({in_text(std::move(sql), std::move(arguments))}, std::move(done));
}

void pg_link::transaction(std::vector<pg_statement> statements, pg_answer done) {
  auto answer = [done = std::move(done), count = statements.size()](pg_outcome& outcome) {
    done(rows_of(outcome, count));
  };
  pipeline(std::move(statements), patience_, std::numeric_limits<std::size_t>::max(), std::move(answer));
}

void pg_link::pipeline(std::vector<pg_statement> statements, std::chrono::milliseconds patience,
                       std::size_t row_bytes_max, pg_pipeline_answer done) {
  if (connection_ == nullptr) {
    pg_outcome none{{}, "there is no connection to the server", false};
    return done(none);
  }
  line_.push_back({std::move(statements), patience, row_bytes_max, std::move(done)});
  if (connected_) send_next();
}

void pg_link::send_next() {
  if (sent_ || line_.empty() || !connected_) return;
  sent_ = true;
  outcome_ = {};
  table_ = {};
  for (const auto& one : line_.front().statements)
    if (!send(one)) return close(first_line(pq().PQerrorMessage(connection_)));
  if (pq().PQpipelineSync(connection_) != 1) return close(first_line(pq().PQerrorMessage(connection_)));
  pq().PQsetSingleRowMode(connection_);
  restart_deadline(line_.front().patience);
  flush();
  if (connection_ != nullptr) read_on();
}

bool pg_link::send(const pg_statement& one) {
  std::vector<const char*> values;
  std::vector<int> lengths, formats;
  for (const auto& parameter : one.parameters) {
    values.push_back(parameter.value ? parameter.value->c_str() : nullptr);
    lengths.push_back(parameter.value ? static_cast<int>(parameter.value->size()) : 0);
    grew_ = grew_ || (parameter.value && parameter.value->size() > limits::pg_kept_bytes_max);
    formats.push_back(parameter.binary ? 1 : 0);
  }
  return pq().PQsendQueryParams(connection_, one.sql.c_str(), static_cast<int>(values.size()), nullptr, values.data(),
                                lengths.data(), formats.data(), 0) == 1;
}

void pg_link::flush() {
  const int left = pq().PQflush(connection_);
  if (left < 0) return close(first_line(pq().PQerrorMessage(connection_)));
  if (left > 0) watch(descriptor::wait_write, &pg_link::flush);
}

// Also while nothing is asked: so a connection that ends is noticed.
void pg_link::read_on() {
  if (reading_) return;
  reading_ = true;
  watch(descriptor::wait_read, &pg_link::receive);
}

// False: the connection was closed. libpq holds a message whole, however large, and gives back no memory.
bool pg_link::consume() {
  const auto waiting = [this] {
    int bytes = 0;
    return ::ioctl(pq().PQsocket(connection_), FIONREAD, &bytes) == 0 ? static_cast<std::size_t>(bytes) : 0;
  };
  const auto before = waiting();
  if (pq().PQconsumeInput(connection_) != 1) {
    close(first_line(pq().PQerrorMessage(connection_)));
    return false;
  }
  const auto taken = taken_bytes(pq().PQsocket(connection_));
  // Of a unix socket it is no more than seen that there is less in it than before.
  unparsed_ = taken ? static_cast<std::size_t>(*taken - std::min(*taken, parsed_))
                    : unparsed_ + (before - std::min(before, waiting()));
  // Before libpq copies the row: a server that keeps up with libpq's reading may have sent all of it. libpq's buffer grows
  // for one message only, so that what exceeds the limit at once belongs to a message that does.
  if (is_too_large(unparsed_)) return false;
  if (pq().PQisBusy(connection_) != 0) return true;
  unparsed_ = 0;
  parsed_ = taken.value_or(0);
  return true;
}

bool pg_link::is_too_large(std::size_t bytes) {
  grew_ = grew_ || bytes > limits::pg_kept_bytes_max;
  if (bytes <= limits::pg_message_bytes_max) return false;
  close("a row is larger than " + std::to_string(limits::pg_message_bytes_max) + " bytes");
  return true;
}

void pg_link::receive() {
  reading_ = false;
  if (doubt_) doubt_->store(true);
  if (!consume()) return;
  bool had_nothing = false;
  while (pq().PQisBusy(connection_) == 0 && sent_) {
    PGresult* one = pq().PQgetResult(connection_);
    if (one == nullptr) {  // between two statements
      if (had_nothing) return close("the server's answers do not fit the questions");
      had_nothing = true;
      pq().PQsetSingleRowMode(connection_);
      continue;
    }
    had_nothing = false;
    const bool all = pq().PQresultStatus(one) == PGRES_PIPELINE_SYNC;
    if (!all) take(one);
    pq().PQclear(one);
    if (is_too_large(std::exchange(row_bytes_, 0))) return;
    const auto era = era_;
    if (all) answered();
    if (era != era_) return;
  }
  if (!tell_heard()) return;
  if (!farewell_.empty()) return close(farewell_);
  if (holds_more()) return receive_again();
  if (doubt_) doubt_->store(false);
  read_on();
}

// A statement may have made the session LISTEN, whether or not somebody waits for what it hears. False: the connection was
// closed.
bool pg_link::tell_heard() {
  const auto era = era_;
  while (PGnotify* const one = pq().PQnotifies(connection_)) {
    const std::string channel = one->relname, payload = one->extra;
    pq().PQfreemem(one);
    if (heard_) heard_(channel, payload);
    if (era != era_) return false;
  }
  return true;
}

// libpq takes out of a record of TLS as much as it has room for: half of one may stay in OpenSSL, of which the socket says
// nothing any more.
bool pg_link::holds_more() const {
  void* const tls = pq().PQsslStruct(connection_, "OpenSSL");
  return tls != nullptr && pq().SSL_pending != nullptr && pq().SSL_pending(tls) > 0;
}

void pg_link::receive_again() {
  reading_ = true;
  auto go_on = [self = shared_from_this(), era = era_] {
    if (era == self->era_) self->receive();
  };
  boost::asio::post(context_, std::move(go_on));
}

void pg_link::take(const PGresult* one) {
  auto& steps = outcome_.steps;
  if (!steps.empty() && steps.back().has_error()) return;  // what was skipped
  switch (pq().PQresultStatus(one)) {
    case PGRES_SINGLE_TUPLE: return add_rows(one);
    case PGRES_TUPLES_OK:
      add_rows(one);
      for (int column = 0; column < pq().PQnfields(one); ++column)
        table_.columns.push_back({pq().PQfname(one, column), pq().PQftype(one, column)});
      [[fallthrough]];
    case PGRES_COMMAND_OK:
    case PGRES_EMPTY_QUERY:
      table_.affected = count_of(one);
      table_.tag = pq().PQcmdStatus(const_cast<PGresult*>(one));
      steps.emplace_back(std::exchange(table_, {}));
      return;
    case PGRES_PIPELINE_ABORTED: return;
    default:  // COPY, too, which has no place in a pipeline
      table_ = {};
      steps.emplace_back(error_of(one));
  }
}

void pg_link::add_rows(const PGresult* from) {
  auto& left = line_.front().row_bytes_left;
  for (int row = 0; row < pq().PQntuples(from); ++row) {
    std::vector<std::optional<std::string>> columns;
    std::size_t bytes = 0;
    const auto length_of = [&](int column) { return static_cast<std::size_t>(pq().PQgetlength(from, row, column)); };
    for (int column = 0; column < pq().PQnfields(from); ++column) bytes += sizeof(std::string) + length_of(column);
    row_bytes_ = std::max(row_bytes_, bytes);
    table_.cut_off = table_.cut_off || bytes > left;
    if (table_.cut_off) return;
    left -= bytes;
    for (int column = 0; column < pq().PQnfields(from); ++column) {
      if (pq().PQgetisnull(from, row, column) != 0)
        columns.emplace_back(std::nullopt);
      else
        columns.emplace_back(std::string(pq().PQgetvalue(from, row, column), length_of(column)));
    }
    table_.rows.push_back(std::move(columns));
  }
}

// All of what is in front has been answered.
void pg_link::answered() {
  deadline_.cancel();
  sent_ = false;
  outcome_.behind = block_of(pq().PQtransactionStatus(connection_));
  auto asked_for = std::move(line_.front());
  line_.pop_front();
  auto outcome = std::exchange(outcome_, {});
  const auto era = era_;
  asked_for.done(outcome);
  if (era == era_) send_next();
}

void pg_link::restart_deadline(std::chrono::milliseconds patience) {
  deadline_.expires_after(patience);
  auto on_time = [self = shared_from_this(), era = era_](const boost::system::error_code& cancelled) {
    if (!cancelled && era == self->era_) self->close("no answer in time");
  };
  deadline_.async_wait(on_time);
}

int pg_link::socket() const { return connection_ == nullptr ? -1 : pq().PQsocket(connection_); }

void pg_link::close(const std::string& why) {
  if (connection_ == nullptr && on_connected_ == nullptr && line_.empty()) return;
  ++era_;
  const bool was_sent = sent_;
  const bool was_connected = connected_;
  if (doubt_) doubt_->store(true);  // for ever
  doubt_ = nullptr;
  connected_ = reading_ = sent_ = false;
  deadline_.cancel();
  let_socket_go();
  if (connection_ != nullptr) pq().PQfinish(std::exchange(connection_, nullptr));
  farewell_.clear();
  auto waiting = std::exchange(line_, {});
  auto in_front = std::exchange(outcome_, {});
  if (auto done = std::exchange(on_connected_, nullptr)) done(error{why});
  for (std::size_t i = 0; i < waiting.size(); ++i) {
    pg_outcome outcome;
    if (i == 0 && was_sent) std::swap(outcome, in_front);
    outcome.lost = why;
    outcome.sent = i == 0 && was_sent;
    waiting[i].done(outcome);
  }
  if (was_connected && tell_closed_) tell_closed_(why);
}

}  // namespace fencegate::backend
