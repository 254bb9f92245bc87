#include "fence/rejection.hpp"

#include "base/limits.hpp"
#include "fence/printable.hpp"

#include <algorithm>
#include <array>

namespace fencegate::fence {

namespace {

// In the order of enum reason.
constexpr std::array<reason_terms, reasons> table{{
    {"stale", 412, "FENCED", "ZF001", "Stale fencing token"},
    {"missing", 428, "FENCEMISSING", "ZF002", "Fencing token required"},
    {"malformed", 400, "FENCEBAD", "ZF003", "Malformed fencing token"},
    {"equal", 409, "FENCEUSED", "ZF004", "Fencing token already used"},
    {"jump", 403, "FENCEJUMP", "ZF005", "Fencing token too far ahead"},
    {"unavailable", 503, "FENCEDOWN", "ZF006", "Fencing mark unavailable"},
    {"refused", 403, "FENCEDENY", "ZF007", "Refused by the fence"},
}};
static_assert(static_cast<int>(reason::refused) == reasons - 1);

// A detail may quote a backend's error text, which has no bound of its own.
constexpr std::size_t detail_bytes_max = 512;

// A resource taken from a key (a rule's capture) may hold any bytes; a blank would let it forge the sentence around it.
std::string shown_name(const rejection& r) {
  std::string name = printable(r.resource, limits::resource_bytes_max);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !is_resource_byte(c); }, '?');
  return name;
}

// " of orders", or "" when no resource is known.
std::string about(const char* preposition, const rejection& r) {
  return r.resource.empty() ? "" : preposition + shown_name(r);
}

std::string token_of(const rejection& r) {
  return (r.presented ? "token " + r.presented->to_string() : std::string("the token")) + about(" of ", r);
}

std::string mark_of(const rejection& r) { return r.mark ? "mark " + r.mark->to_string() : std::string("the mark"); }

std::string after_colon(const std::string& detail) { return detail.empty() ? "" : ": " + detail; }

std::string in_brackets(const std::string& detail) { return detail.empty() ? "" : " (" + detail + ")"; }

// The numbers, for sentences that do not need them but whose reader may.
std::string numbers(const rejection& r) {
  std::string text;
  if (r.presented) text = "token " + r.presented->to_string();
  if (r.mark) text += (text.empty() ? "mark " : ", mark ") + r.mark->to_string();
  return in_brackets(text);
}

std::string_view who_needs_it(attempt at) {
  switch (at) {
    case attempt::write: break;
    case attempt::read: return "a read";
    case attempt::raise: return "a raise of a mark";
    case attempt::connection: return "a connection through this gate";
  }
  return "a write";
}

std::string sentence(const rejection& r) {
  const auto detail = printable(r.detail, detail_bytes_max);
  switch (r.why) {
    case reason::stale: return token_of(r) + " is below " + mark_of(r) + in_brackets(detail);
    case reason::missing:
      return std::string(who_needs_it(r.at)) + " needs a fencing token" + about(" for ", r) +
             (r.at == attempt::connection ? ", and " + detail : in_brackets(detail)) + numbers(r);
    case reason::malformed: return "no usable fencing token" + about(" for ", r) + after_colon(detail) + numbers(r);
    case reason::equal: return token_of(r) + " was used already (equal_token: reject)" + in_brackets(detail);
    case reason::jump:
      return token_of(r) + " exceeds " + mark_of(r) +
             (detail.empty() ? " by more than max_step allows" : ", " + detail);
    case reason::unavailable:
      return "the mark" + about(" of ", r) + " could not be checked" + after_colon(detail) + numbers(r);
    case reason::refused: return (detail.empty() ? "this command is refused" : detail) + about(" for ", r) + numbers(r);
  }
  return "rejected";  // not reached: every reason is named above
}

}  // namespace

const reason_terms& terms_of(reason why) { return table.at(static_cast<std::size_t>(why)); }

std::string describe(const rejection& r) { return sentence(r) + "; not applied"; }

std::string redis_error(const rejection& r) {
  const std::string code(terms_of(r.why).redis_code);
  if (r.why == reason::missing && r.detail.empty()) {
    rejection with_advice = r;
    with_advice.detail = "put fence:RESOURCE=TOKEN into the client name, or send FENCE SET RESOURCE TOKEN";
    return "-" + code + " " + describe(with_advice) + "\r\n";
  }
  return "-" + code + " " + describe(r) + "\r\n";
}

std::string redis_refusal(std::string_view why) {
  return "-" + std::string(terms_of(reason::unavailable).redis_code) + " " + printable(why, detail_bytes_max) +
         "; not applied\r\n";
}

}  // namespace fencegate::fence
