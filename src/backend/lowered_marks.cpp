#include "backend/lowered_marks.hpp"

#include <charconv>
#include <optional>
#include <utility>

namespace fencegate::backend {
namespace {

constexpr char before_number = '~';
constexpr std::string_view not_understood = "what operators have lowered could not be understood";

std::optional<std::uint64_t> number_of(std::string_view digits) {
  const auto read = fence::token::parse(digits);
  return read ? std::optional(static_cast<std::uint64_t>(read->value())) : std::nullopt;
}

// What stands in front of the next `end`, which is taken away, too; or all of it.
std::string_view next(std::string_view& text, char end) {
  const auto at = text.find(end);
  const auto out = text.substr(0, at);
  text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
  return out;
}

std::string_view base_of(std::string_view epoch) {
  return lowerings_in(epoch) == 0 ? epoch : epoch.substr(0, epoch.rfind(before_number));
}

// number, resource, from, to, who, why
std::optional<lowering> lowering_of(std::string_view line) {
  const auto number = number_of(next(line, '\t'));
  const auto resource = next(line, '\t');
  const auto from = fence::token::parse(next(line, '\t')), to = fence::token::parse(next(line, '\t'));
  const auto by = next(line, '\t');
  if (!number || !fence::is_resource_name(resource) || !from || !to) return std::nullopt;
  return lowering{*number, std::string(resource), *from, *to, std::string(by), std::string(line)};
}

}  // namespace

std::uint64_t lowerings_in(std::string_view epoch) {
  const auto at = epoch.rfind(before_number);
  return at == std::string_view::npos ? 0 : number_of(epoch.substr(at + 1)).value_or(0);
}

bool is_behind_lowerings(std::string_view epoch, std::string_view known) {
  return !known.empty() && base_of(epoch) == base_of(known) && lowerings_in(epoch) > lowerings_in(known);
}

result<std::vector<lowering>> read_lowerings(std::string_view text, std::string_view known) {
  const auto forgotten = number_of(next(text, '\t'));
  if (!forgotten) return error{std::string(not_understood)};
  if (next(text, '\n') != base_of(known) || *forgotten > lowerings_in(known))
    return error{"what operators have lowered is not known any more"};
  std::vector<lowering> out;
  while (!text.empty()) {
    auto one = lowering_of(next(text, '\n'));
    if (!one) return error{std::string(not_understood)};
    if (one->number > lowerings_in(known)) out.push_back(std::move(*one));
  }
  return out;
}

}  // namespace fencegate::backend
