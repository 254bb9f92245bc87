// Redis's replies as JSON, for routes that answer with them.
//
// Strings are strings; bytes that are no UTF-8 are {"base64":"…"}; integers and big numbers are numbers, exact however
// many digits they have; doubles are numbers, or "inf", "-inf", "nan"; booleans and nulls are what they are; errors are
// {"error":"…"}; arrays, sets and pushes are arrays. A map is an object where its keys are distinct UTF-8 strings, else an
// array of key, value, key, value.
#pragma once

#include "wire/resp_reply.hpp"

#include <string>

namespace fencegate::wire {

void append_reply_json(std::string& out, const reply_value& reply);

}  // namespace fencegate::wire
