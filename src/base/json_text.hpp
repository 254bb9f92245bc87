// Writes JSON (RFC 8259) piece by piece behind a text, without a tree in between: whatever bytes come in, what comes out
// is well-formed UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate {

// A string with its quotes. Bytes that are no UTF-8 become U+FFFD, one each.
void append_json_string(std::string& out, std::string_view text);

// The same for bytes that must not be lost: what is no UTF-8 becomes {"base64":"…"} (RFC 4648 section 4, padded).
void append_json_bytes(std::string& out, std::string_view bytes);

// Whether the text is a JSON number, so that it can stand in a document as it is, however many digits it has. One whose
// exponent has more than four is taken for none: readers fail at it.
[[nodiscard]] bool is_json_number(std::string_view text);

// Writes `"name":` with the comma or brace that has to precede it, then the value; end() closes. An object without members
// is `{}`.
class json_object {
 public:
  explicit json_object(std::string& out) : out_(out) {}
  // For values that are written elsewhere: append one behind it.
  void name(std::string_view member);
  void add(std::string_view member, std::string_view text);
  void add(std::string_view member, std::int64_t number);
  void add_list(std::string_view member, const std::vector<std::string>& texts);
  void end();

 private:
  std::string& out_;
  bool begun_ = false;
};

}  // namespace fencegate
