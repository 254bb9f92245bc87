// The error and result types that pure code returns: no exceptions cross a folder's boundary.
#pragma once

#include <boost/system/result.hpp>

#include <stdexcept>
#include <string>
#include <utility>

namespace fencegate {

// What went wrong, in words for a person: what it is, and what to do about it where that is known.
struct error {
  std::string message;
};

template <class T>
using result = boost::system::result<T, error>;

// Called by result::value() on an error; code that has not checked is wrong, so this ends up in the process's log.
[[noreturn]] inline void throw_exception_from_error(const error& e, const boost::source_location&) {
  throw std::logic_error("unchecked result: " + e.message);
}

}  // namespace fencegate
