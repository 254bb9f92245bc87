// Fields behind a chunked body (RFC 9110 section 6.5), of responses: who wants them, and which of them may go on. Who gets
// them may take them for fields of the head, so nothing passes that means something there to whoever handles the message.
//
// Those of requests never go on: they come when the request was checked, and no server says what it makes of them.
#pragma once

#include "base/header_field.hpp"
#include "wire/http_head.hpp"

#include <span>
#include <string>
#include <string_view>

namespace fencegate::wire {

// `TE: trailers` of an HTTP/1.1 request. It says nothing else of TE; what is not understood there is no wish.
[[nodiscard]] bool wants_trailers(const http_request_head& head);

// What is dropped besides what never may be a trailer.
struct http_trailer_rules {
  std::span<const std::string_view> fence_fields = {};  // names by which tokens travel
  std::span<const std::string_view> listed = {};        // by the Connection of the head: see http_hop
};

// Not: fields of framing, routing, authentication, cookies, request modifiers, response controls and content handling (RFC
// 9110 section 6.5.1); those between neighbours; those that this gate or another proxy writes, or that the fence reads;
// whatever looks like one of these with '_' for '-'.
[[nodiscard]] bool may_be_trailer(std::string_view name, const http_trailer_rules& rules);

// Writes each line anew that may go on. REQUIRES: `lines` are those of a http_chunk_decoder.
void append_trailers(std::string& out, std::string_view lines, const http_trailer_rules& rules);

// The field Trailer of a head, without the names that do not go on; nothing where none is left, or it is no list of names.
void append_trailer_names(std::string& out, std::span<const header_field> fields, const http_trailer_rules& rules);

}  // namespace fencegate::wire
