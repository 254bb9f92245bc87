// Structured logging as the rest of the code sees it: one event, a few fields. Where lines go and how they look is
// decided by the sink that the process edge installs (admin/log_sink.hpp); without one, nothing is written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <variant>

namespace fencegate::log {

enum class level : std::uint8_t { debug, info, warn, error };

struct field {
  std::string_view key;
  std::variant<std::string_view, std::int64_t> value;
};

// Must be callable from any thread.
using sink = void (*)(level, std::string_view message, const field* fields, std::size_t count);

void set_sink(sink s, level least);
[[nodiscard]] bool enabled(level l);

// `message` is a short fixed text ("write rejected"); what varies goes into fields. Never pass values or passwords.
void write(level l, std::string_view message, std::initializer_list<field> fields = {});
// The same, for fields that are only known at run time.
void write(level l, std::string_view message, const field* fields, std::size_t count);

// An event of which some fields may be missing. `Token`: fence::token, which this folder does not know; as a number.
class event {
 public:
  event& add(std::string_view key, std::string_view text) {
    if (!text.empty()) push({key, text});
    return *this;
  }
  event& add(std::string_view key, std::int64_t number) {
    push({key, number});
    return *this;
  }
  template <class Token>
  event& add(std::string_view key, const std::optional<Token>& token) {
    if (token) push({key, token->value()});
    return *this;
  }
  void write(level l, std::string_view message) const { log::write(l, message, fields_.data(), count_); }

 private:
  void push(field one) { fields_.at(count_++) = one; }

  std::array<field, 12> fields_;
  std::size_t count_ = 0;
};

}  // namespace fencegate::log
