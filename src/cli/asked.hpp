// For commands that ask one thing after the other.
#pragma once

#include <boost/asio/io_context.hpp>

#include <memory>
#include <utility>

namespace fencegate::cli {

// Runs the context until `ask`, which is given what takes the answer, has been answered; `unanswered`: it never was.
template <class Answer, class Ask>
Answer asked(boost::asio::io_context& io, Answer unanswered, const Ask& ask) {
  auto answer = std::make_shared<Answer>(std::move(unanswered));
  ask([&io, answer](const Answer& told) {
    *answer = told;
    io.stop();
  });
  io.restart();
  io.run();
  return std::move(*answer);
}

}  // namespace fencegate::cli
