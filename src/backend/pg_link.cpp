#include "backend/pg_link.hpp"

#include <libpq-fe.h>

#include <utility>

namespace fencegate::backend {
namespace {

using descriptor = boost::asio::posix::stream_descriptor;

// libpq's messages have several lines, the first says it.
std::string first_line(const char* text) {
  const std::string_view all = text == nullptr ? "" : text;
  return std::string(all.substr(0, all.find('\n')));
}

wire::pg_error error_of(const PGresult* from) {
  const auto field = [from](int code) {
    const char* text = PQresultErrorField(from, code);
    return std::string(text == nullptr ? "" : text);
  };
  wire::pg_error e{"ERROR", field(PG_DIAG_SQLSTATE), field(PG_DIAG_MESSAGE_PRIMARY), field(PG_DIAG_MESSAGE_DETAIL),
                   field(PG_DIAG_MESSAGE_HINT)};
  if (e.message.empty()) e.message = first_line(PQresultErrorMessage(from));
  return e;
}

wire::pg_error trouble(std::string what) { return {"FATAL", {}, std::move(what), {}, {}}; }

pg_result rows_of(const PGresult* from) {
  const auto status = PQresultStatus(from);
  if (status == PGRES_COMMAND_OK) return pg_rows{};
  if (status != PGRES_TUPLES_OK) return error_of(from);
  pg_rows rows;
  for (int row = 0; row < PQntuples(from); ++row) {
    auto& columns = rows.emplace_back();
    for (int column = 0; column < PQnfields(from); ++column) {
      if (PQgetisnull(from, row, column) != 0)
        columns.emplace_back(std::nullopt);
      else
        columns.emplace_back(PQgetvalue(from, row, column));
    }
  }
  return rows;
}

}  // namespace

pg_link::pg_link(boost::asio::io_context& context, std::chrono::milliseconds patience)
    : context_(context), patience_(patience), descriptor_(context), deadline_(context) {}

pg_link::~pg_link() {
  if (descriptor_.is_open()) descriptor_.release();
  if (connection_ != nullptr) PQfinish(connection_);
}

void pg_link::connect(const parameters& how, std::function<void(const result<void>&)> done) {
  ++era_;
  on_connected_ = std::move(done);
  std::vector<const char*> keywords, values;
  for (const auto& [keyword, value] : how) {
    keywords.push_back(keyword.c_str());
    values.push_back(value.c_str());
  }
  keywords.push_back(nullptr);
  values.push_back(nullptr);
  connection_ = PQconnectStartParams(keywords.data(), values.data(), 0);
  if (connection_ == nullptr) return close("out of memory");
  if (PQstatus(connection_) == CONNECTION_BAD) return close(first_line(PQerrorMessage(connection_)));
  restart_deadline();
  watch(descriptor::wait_write, &pg_link::go_on_connecting);
}

void pg_link::go_on_connecting() {
  switch (PQconnectPoll(connection_)) {
    case PGRES_POLLING_READING: return watch(descriptor::wait_read, &pg_link::go_on_connecting);
    case PGRES_POLLING_WRITING: return watch(descriptor::wait_write, &pg_link::go_on_connecting);
    case PGRES_POLLING_OK: break;
    default: return close(first_line(PQerrorMessage(connection_)));
  }
  connected_ = true;
  deadline_.cancel();
  PQsetnonblocking(connection_, 1);
  if (auto done = std::exchange(on_connected_, nullptr)) done({});
  send_next();
}

// The socket may be another one after each step of connecting.
void pg_link::watch(descriptor::wait_type until, void (pg_link::*then)()) {
  const int socket = PQsocket(connection_);
  if (socket < 0) return close("the connection was lost");
  if (!descriptor_.is_open() || descriptor_.native_handle() != socket) {
    if (descriptor_.is_open()) descriptor_.release();
    boost::system::error_code failed;
    descriptor_.assign(socket, failed);
    if (failed) return close(failed.message());
  }
  auto on_ready = [self = shared_from_this(), era = era_, then](const boost::system::error_code& failed) {
    if (era != self->era_ || failed == boost::asio::error::operation_aborted) return;
    if (failed) return self->close(failed.message());
    (self.get()->*then)();
  };
  descriptor_.async_wait(until, on_ready);
}

void pg_link::query(std::string sql, std::vector<std::string> arguments, pg_answer done) {
  if (connection_ == nullptr) return done(trouble("there is no connection to the server"));
  line_.push_back({std::move(sql), std::move(arguments), std::move(done)});
  if (connected_) send_next();
}

void pg_link::send_next() {
  if (sent_ || line_.empty() || !connected_) return;
  sent_ = true;
  answer_.reset();
  std::vector<const char*> values;
  for (const auto& argument : line_.front().arguments) values.push_back(argument.c_str());
  if (PQsendQueryParams(connection_, line_.front().sql.c_str(), static_cast<int>(values.size()), nullptr, values.data(),
                        nullptr, nullptr, 0) != 1)
    return close(first_line(PQerrorMessage(connection_)));
  restart_deadline();
  flush();
  if (connection_ != nullptr && !reading_) {
    reading_ = true;
    watch(descriptor::wait_read, &pg_link::receive);
  }
}

void pg_link::flush() {
  const int left = PQflush(connection_);
  if (left < 0) return close(first_line(PQerrorMessage(connection_)));
  if (left > 0) watch(descriptor::wait_write, &pg_link::flush);
}

void pg_link::receive() {
  reading_ = false;
  if (PQconsumeInput(connection_) != 1) return close(first_line(PQerrorMessage(connection_)));
  while (sent_ && PQisBusy(connection_) == 0) {
    if (PGresult* one = PQgetResult(connection_); one != nullptr) {
      if (!answer_ || !answer_->has_error()) answer_ = rows_of(one);
      PQclear(one);
      continue;
    }
    deadline_.cancel();
    sent_ = false;
    auto answered = std::move(line_.front());
    line_.pop_front();
    const auto era = era_;
    answered.done(answer_ ? *answer_ : pg_result(trouble("the server gave no answer")));
    if (era != era_) return;
    send_next();
    if (era != era_) return;
  }
  // Also while nothing is asked: so a connection that ends is noticed.
  if (!reading_) {
    reading_ = true;
    watch(descriptor::wait_read, &pg_link::receive);
  }
}

void pg_link::restart_deadline() {
  deadline_.expires_after(patience_);
  auto on_time = [self = shared_from_this(), era = era_](const boost::system::error_code& cancelled) {
    if (!cancelled && era == self->era_) self->close("no answer in time");
  };
  deadline_.async_wait(on_time);
}

void pg_link::close(const std::string& why) {
  if (connection_ == nullptr && on_connected_ == nullptr && line_.empty()) return;
  ++era_;
  connected_ = reading_ = sent_ = false;
  deadline_.cancel();
  if (descriptor_.is_open()) descriptor_.release();
  if (connection_ != nullptr) PQfinish(std::exchange(connection_, nullptr));
  auto waiting = std::exchange(line_, {});
  if (auto done = std::exchange(on_connected_, nullptr)) done(error{why});
  for (auto& one : waiting) one.done(trouble(why));
}

}  // namespace fencegate::backend
