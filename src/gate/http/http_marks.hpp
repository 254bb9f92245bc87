// Marks as a resource of their own: GET and PUT /.fencegate/marks/{resource} read a mark, and raise it without a write.
// Sessions of a gate serve them, or the admin listener does, through the desk.
#pragma once

#include "base/header_field.hpp"
#include "base/metrics.hpp"
#include "fence/gate_settings.hpp"
#include "gate/http/http_plan.hpp"
#include "gate/http/http_stores.hpp"
#include "gate/relay/rejection_log.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace fencegate::gate {

// The claims of a request; they cover the resource unless `why` says what is wrong with them. Without `why` and `claims`
// it has no token and needs none.
struct request_claims {
  claims_list claims;
  std::optional<fence::rejection> why;
};
[[nodiscard]] request_claims read_claims(std::span<const header_field> fields, std::string_view token_header,
                                         const std::string& resource, fence::attempt at, bool needed);

struct marks_question {
  std::string resource;
  bool raises = false;
  claims_list claims;  // GET: the resource alone, with whatever token
  // Not to be asked:
  std::optional<fence::rejection> why;
  int refused = 0;  // the status, where the fence has nothing to say about it
  std::string_view detail;

  // A rejection of it by the store, which names the resource; a token, only where the request has one.
  [[nodiscard]] fence::rejection why_of(fence::rejection found) const;
};
// `path`: with all escapes undone.
[[nodiscard]] marks_question read_marks_question(std::string_view method, std::string_view path,
                                                 std::span<const header_field> fields, std::string_view token_header);

// What a question that was not rejected is answered with, in JSON; "": the resource has no mark.
[[nodiscard]] std::string marks_json(const marks_question& asked, const fence_answer& answered);

// Serves them to somebody who is no session of the gate, one request at a time or many.
class http_marks_desk {
 public:
  struct request {
    std::string_view method, target, host;
    std::span<const header_field> fields;
    std::string_view client;  // address
  };
  struct answer {
    int status = 200;
    std::string content_type;
    std::string body;
    std::string mark;  // for the field Fencing-Mark; "": none
  };

  // REQUIRES: the gate, stats and log live longer; the stores answer on the thread that asks.
  http_marks_desk(std::unique_ptr<http_stores> stores, const settings::http_gate& gate, http_plan plan,
                  metrics::gate& stats, rejection_log& rejections)
      : stores_(std::move(stores)), gate_(gate), plan_(std::move(plan)), stats_(stats), rejections_(rejections) {}

  // `done` comes once, at once or later, and never after the desk's end.
  void ask(const request& what, std::function<void(answer)> done);

 private:
  [[nodiscard]] answer rejected(const fence::rejection& why, std::string_view client, std::string_view method);

  const std::unique_ptr<http_stores> stores_;
  const settings::http_gate& gate_;
  const http_plan plan_;
  metrics::gate& stats_;
  rejection_log& rejections_;
  const std::shared_ptr<const int> alive_ = std::make_shared<const int>();
};

}  // namespace fencegate::gate
