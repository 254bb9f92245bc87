// Comments, which nest, and the tags in them.
#include "wire/sql_bytes.hpp"
#include "wire/sql_lane.hpp"

namespace fencegate::wire {

namespace {

using namespace sql_limits;

constexpr std::string_view fence_prefix = "fence:";
constexpr std::uint8_t fence_whole = fence_prefix.size();
constexpr std::uint8_t fence_none = 0xFF;

}  // namespace

const char* sql_lane::comment(const char* at, const char* end) {
  if (s_.fence == fence_none) {
    at = skip_to(at, end, '*', '/');
    if (at == end) {
      return at;
    }
  }
  comment_byte(*at);
  if (*at == '*') {
    s_.where = mode::comment_star;
  } else if (*at == '/') {
    s_.where = mode::comment_slash;
  }
  return at + 1;
}

const char* sql_lane::comment_slash(const char* at) {
  if (*at != '*') {
    s_.where = mode::comment;
    return at;
  }
  ++s_.depth;
  comment_byte(*at);
  s_.where = mode::comment;  // the star of `/*/` ends nothing
  return at + 1;
}

const char* sql_lane::comment_star(const char* at, sql_findings& out) {
  if (*at != '/') {
    s_.where = mode::comment;
    return at;
  }
  if (--s_.depth > 0) {
    comment_byte(*at);
    s_.where = mode::comment;
    return at + 1;
  }
  if (s_.fence == fence_whole) {
    s_.tag.pop_back();  // the star
    while (!s_.tag.empty() && is_sql_blank(s_.tag.back())) {
      s_.tag.pop_back();
    }
    out.add_tag(s_.tag);
  }
  s_.tag.clear();
  s_.fence = 0;
  s_.where = mode::between;
  return at + 1;
}

// Only the outermost comment is asked for `fence:`: what stands in it before that, a comment too, says no.
void sql_lane::comment_byte(char c) {
  if (s_.fence == fence_none) {
    return;
  }
  if (s_.fence == fence_whole) {
    // Two more than is allowed, so that it is still too long without its last star.
    if (s_.tag.size() < tag_bytes_max + 2 && !(s_.tag.empty() && is_sql_blank(c))) {
      s_.tag += c;
    }
  } else if (c == fence_prefix[s_.fence]) {
    ++s_.fence;
  } else if (s_.fence != 0 || !is_sql_blank(c)) {
    s_.fence = fence_none;
  }
}

}  // namespace fencegate::wire
