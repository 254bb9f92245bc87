// What is wrong with an HTTP message. Of a request, the status to answer before the connection is closed; of a response,
// always 502.
#pragma once

#include <boost/system/result.hpp>

#include <stdexcept>
#include <string>
#include <string_view>

namespace fencegate::wire {

struct http_error {
  constexpr http_error() = default;
  // Not an aggregate: else any number would do for one, and a result<int> could not tell its two sides apart.
  constexpr http_error(int code, std::string_view text) : status(code), message(text) {}

  int status = 400;
  std::string_view message = {};  // for a person; static storage

  friend bool operator==(const http_error&, const http_error&) = default;
};

template <class T>
using http_result = boost::system::result<T, http_error>;

[[noreturn]] inline void throw_exception_from_error(const http_error& e, const boost::source_location&) {
  throw std::logic_error("unchecked result: " + std::string(e.message));
}

}  // namespace fencegate::wire
