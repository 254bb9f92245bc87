// Takes a stream of messages apart with the codec of src/wire, in whatever pieces it comes, and says in one line each what
// became of them, in the words of tests/corpus. Corpus tests and fuzz targets read through it. No gtest here.
#pragma once

#include "wire/http_chunks.hpp"
#include "wire/http_framing.hpp"
#include "wire/http_head.hpp"
#include "wire/http_hop.hpp"
#include "wire/http_target.hpp"
#include "wire/http_trailers.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::test {

// A body of one framing, at the start of a growing input.
class http_body_reader {
 public:
  enum class status { more, complete, malformed };

  void begin(const wire::http_framing& framing) {
    framing_ = framing;
    left_ = framing.length;
    chunks_ = {};
    body.clear();
  }

  // Takes what belongs to the body off the front of the input.
  status take(std::string& input) {
    using kind = wire::http_framing::kind;
    if (framing_.what == kind::none) return status::complete;
    if (framing_.what == kind::chunked) return take_chunks(input);
    const auto bytes = framing_.what == kind::until_close
                           ? input.size()
                           : static_cast<std::size_t>(std::min<std::uint64_t>(left_, input.size()));
    body += input.substr(0, bytes);
    input.erase(0, bytes);
    left_ -= framing_.what == kind::length ? bytes : 0;
    return framing_.what == kind::length && left_ == 0 ? status::complete : status::more;
  }

  // REQUIRES: just begun, or complete.
  wire::http_chunk_decoder& chunks() { return chunks_; }

  std::string body;

 private:
  status take_chunks(std::string& input) {
    using step = wire::http_chunk_decoder::step;
    while (!input.empty()) {
      const auto got = chunks_.advance(input);
      body += got.data;
      input.erase(0, got.consumed);
      if (got.what == step::status::malformed) return status::malformed;
      if (got.what == step::status::complete) return status::complete;
    }
    return status::more;
  }

  wire::http_framing framing_;
  std::uint64_t left_ = 0;
  wire::http_chunk_decoder chunks_;
};

inline std::string with_body(std::string line, const std::string& body) {
  return body.empty() ? line : line + " " + body;
}

inline constexpr std::array<std::string_view, 2> http_fence_fields{"Fencing-Token", "X-Fencing-Token"};

class http_request_reader {
 public:
  void feed(std::string_view piece) {
    input_ += piece;
    while (!over_ && (in_body_ ? take_body() : take_head())) {
    }
  }

  // REQUIRES: nothing more is fed.
  std::vector<std::string> verdicts() {
    if (!over_ && (in_body_ || !input_.empty())) lines_.emplace_back("wait");
    return lines_;
  }

 private:
  // False: more input is needed, or nothing more is read.
  bool take_head() {
    const auto found = finder_.find(input_);
    if (!found) return fail(found.error());
    if (!*found) return false;
    const auto read = read_head(std::string_view(input_).substr((*found)->begin, (*found)->end - (*found)->begin));
    if (!read) return fail(read.error());
    input_.erase(0, (*found)->end);
    in_body_ = true;
    return true;
  }

  wire::http_result<void> read_head(std::string_view bytes) {
    wire::http_request_head head;
    if (auto parsed = wire::parse_request_head(bytes, head); !parsed) return parsed;
    if (auto parsed = wire::read_request_hop(head, http_fence_fields, hop_); !parsed) return parsed;
    const auto framing = wire::request_framing(head);
    if (!framing) return framing.error();
    wire::http_target target;
    if (auto parsed = wire::parse_http_target(head.method, head.target, head.host, target); !parsed) return parsed;
    line_ = "pass " + std::string(head.method) + " ";
    target.append_to(line_);
    keep_alive_ = hop_.keep_alive;
    body_.begin(*framing);
    return {};
  }

  bool take_body() {
    const auto got = body_.take(input_);
    if (got == http_body_reader::status::malformed) return fail({400, "a malformed body"});
    if (got == http_body_reader::status::more) return false;
    lines_.push_back(with_body(line_, body_.body));
    in_body_ = false;
    over_ = !keep_alive_;
    return true;
  }

  bool fail(const wire::http_error& e) {
    lines_.push_back(std::to_string(e.status));
    over_ = true;
    return false;
  }

  wire::http_head_finder finder_{wire::http_head_finder::side::request};
  wire::http_hop hop_;
  std::string input_;
  std::string line_;
  http_body_reader body_;
  bool in_body_ = false;
  bool keep_alive_ = false;
  bool over_ = false;
  std::vector<std::string> lines_;
};

// The answer to one request, interim ones included.
class http_response_reader {
 public:
  explicit http_response_reader(std::string method) : method_(std::move(method)) {}

  void feed(std::string_view piece) {
    input_ += piece;
    while (!over_ && (in_body_ ? take_body() : take_head())) {
    }
  }

  // REQUIRES: nothing more is fed: the upstream has closed.
  std::vector<std::string> verdicts() {
    if (over_) {
      if (whole_) end(reusable_ && input_.empty() ? "keep" : "close");
    } else if (!in_body_) {
      lines_.emplace_back("502");
    } else {
      end(until_close_ ? "close" : "cut");
    }
    over_ = true;
    whole_ = false;
    return lines_;
  }

  // Its trailers, as they go on to who wants them.
  [[nodiscard]] const std::string& trailers() const { return trailers_; }

 private:
  bool take_head() {
    const auto found = finder_.find(input_);
    if (!found) return fail();
    if (!*found) return false;
    wire::http_response_head head;
    wire::http_hop hop;
    if (!wire::parse_response_head(std::string_view(input_).substr(0, (*found)->end), head)) return fail();
    if (!wire::read_response_hop(head, hop)) return fail();
    const auto framing = wire::response_framing(head, method_);
    if (!framing) return fail();
    status_ = std::to_string(head.status);
    listed_.assign(hop.listed.begin(), hop.listed.end());
    input_.erase(0, (*found)->end);
    if (head.status < 200) {
      lines_.push_back(status_);
      return true;
    }
    reusable_ = framing->reusable && hop.keep_alive;
    until_close_ = framing->what == wire::http_framing::kind::until_close;
    body_.begin(*framing);
    body_.chunks().keep_trailers();
    in_body_ = true;
    return true;
  }

  bool take_body() {
    const auto got = body_.take(input_);
    if (got == http_body_reader::status::more) return false;
    over_ = true;
    whole_ = got == http_body_reader::status::complete;
    if (whole_)
      end_body();
    else
      end("cut");
    return false;
  }

  void end_body() {
    const std::vector<std::string_view> listed(listed_.begin(), listed_.end());
    wire::append_trailers(trailers_, body_.chunks().trailers(), {http_fence_fields, listed});
  }

  void end(const std::string& how) { lines_.push_back(with_body(status_ + " " + how, body_.body)); }

  bool fail() {
    lines_.emplace_back("502");
    over_ = true;
    return false;
  }

  std::string method_;
  wire::http_head_finder finder_{wire::http_head_finder::side::response};
  std::string input_;
  std::string status_;
  http_body_reader body_;
  bool in_body_ = false;
  bool reusable_ = false;
  bool until_close_ = false;
  bool over_ = false;
  bool whole_ = false;  // over, and still to be named
  std::vector<std::string> listed_;
  std::string trailers_;
  std::vector<std::string> lines_;
};

}  // namespace fencegate::test
