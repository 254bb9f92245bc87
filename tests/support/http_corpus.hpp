// Reads the cases of tests/corpus; the format is in its README.md. No gtest here.
#pragma once

#include <cstddef>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::test {

struct http_case {
  std::string name;
  std::string why;
  std::string method = "GET";
  std::string bytes;
  std::vector<std::string> expected;  // unescaped
  std::string trailers;               // unescaped
};

inline std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    switch (text.at(++i)) {
      case 'r': out += '\r'; break;
      case 'n': out += '\n'; break;
      case 't': out += '\t'; break;
      case '\\': out += '\\'; break;
      case 'x':
        out += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
        i += 2;
        break;
      default: throw std::runtime_error("unknown escape in " + std::string(text));
    }
  }
  return out;
}

inline std::vector<http_case> read_corpus(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw std::runtime_error(file + " is missing");
  std::vector<http_case> cases;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line.front() == '#') continue;
    const auto blank = line.find(' ');
    const auto word = line.substr(0, blank);
    const auto text = blank == std::string::npos ? std::string() : line.substr(blank + 1);
    if (word == "case") {
      cases.emplace_back().name = text;
    } else if (cases.empty()) {
      throw std::runtime_error("'" + line + "' in front of the first case of " + file);
    } else if (word == "why") {
      cases.back().why = text;
    } else if (word == "method") {
      cases.back().method = text;
    } else if (word == "send") {
      cases.back().bytes += unescaped(text);
    } else if (word == "fill") {
      std::size_t digits = 0;
      const auto count = std::stoul(text, &digits);
      const auto piece = unescaped(std::string_view(text).substr(digits + 1));
      for (unsigned long i = 0; i < count; ++i) cases.back().bytes += piece;
    } else if (word == "trailers") {
      cases.back().trailers += unescaped(text);
    } else if (word == "expect") {
      cases.back().expected.push_back(unescaped(text));
    } else {
      throw std::runtime_error("'" + line + "' in " + file + " begins with no word of the format");
    }
  }
  return cases;
}

}  // namespace fencegate::test
