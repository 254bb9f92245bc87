// Which tokens a PostgreSQL connection brings, and the texts by which a session is armed with them. Pure.
#pragma once

#include "backend/pg_raised.hpp"
#include "base/result.hpp"
#include "fence/rejection.hpp"
#include "fence/tag.hpp"
#include "wire/pg_message.hpp"
#include "wire/pg_opening.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::gate {

// The setting that carries a tag; no server knows it, so it passes as a placeholder of its own class.
inline constexpr std::string_view tokens_setting = "fencing.tokens";

using fence::claims_list;

// The claims of a start-up packet: `fencing.tokens` in `options` or as a parameter of its own, and a tag in
// `application_name`, wherever it stands. Empty: there is none. An error: one is malformed, or two differ.
[[nodiscard]] result<claims_list> claims_of(const wire::pg_opening& opening);
// It sets `application_name`.
[[nodiscard]] bool brings_name(const wire::pg_opening& opening);

// The claims in the tag of a statement's comment; an error as above.
[[nodiscard]] result<claims_list> claims_of_comment(std::string_view tag);

// With one claim only, it is clear what an error that names nothing is about.
[[nodiscard]] fence::rejection about_single(fence::rejection why, const claims_list& claims);

// What `wanted` has that `bound` has not, or has with another token.
[[nodiscard]] claims_list claims_beyond(const claims_list& bound, const claims_list& wanted);
// `added` over `bound`: a resource of both takes the token of `added`.
void bind_claims(claims_list& bound, const claims_list& added);

// One simple Query, an implicit transaction of its own: READ COMMITTED, READ WRITE, no statement_timeout, no JIT, then
// fencegate.arm_all, in the session that was announced with this process id only: another one is a pooler's, whose client
// could go on in a third. All names are schema-qualified: the client chose this session's search_path.
[[nodiscard]] std::string arm_query(const claims_list& claims, std::chrono::milliseconds cut_timeout,
                                    std::int64_t max_step, std::int32_t pid);

// The call of fencegate.guard_under, or of guard_one_under, for these claims. The server reads literals as what these take, and asks no
// search_path for it.
[[nodiscard]] std::string guard_statement(const claims_list& claims);

// An error that the fence's functions raise on purpose.
[[nodiscard]] bool is_fences_own(const wire::pg_error& e);
// What a client is told for which there is no room.
[[nodiscard]] wire::pg_error pg_error_of_limit(const std::string& why);
// What an error of the fence's functions means; one that is not theirs: the mark could not be checked.
[[nodiscard]] fence::rejection rejection_of(const wire::pg_error& e, const claims_list& claims);

// Reads the replies to arm_query. Success must enable: armed only when every claim's row came back with its own token as
// mark, no error came, and the session stands outside a transaction again.
class arm_reading {
 public:
  struct outcome {
    bool armed = false;
    backend::pg_raised did{};
    // Not armed: why. `resource` and numbers from the server's DETAIL where it gave them.
    fence::rejection why;
  };

  arm_reading() = default;
  explicit arm_reading(claims_list claims) : claims_(std::move(claims)) {}

  // One reply; true: it was ReadyForQuery, the last one.
  bool take(char type, std::string_view body);
  [[nodiscard]] outcome judge() const;
  // The session stands outside a transaction, as before: at worst nothing has changed.
  [[nodiscard]] bool left_session_idle() const { return status_ == 'I' || status_ == 0; }

 private:
  void take_row(std::string_view body);
  void fail(std::string why);

  claims_list claims_;
  std::vector<bool> proven_;
  backend::pg_raised did_;
  char status_ = 0;
  std::optional<wire::pg_error> error_;
  std::string problem_;
};

// What of the session's last statements is certain when its token was superseded.
enum class applied : std::uint8_t { no, unknown };

// The server's SQLSTATE to a session that somebody ends: an administrator, or a raise.
inline constexpr std::string_view admin_shutdown = "57P01";

// The field D of what the gate says: JSON.
[[nodiscard]] std::string pg_detail(const fence::rejection& why, applied certain);

// ErrorResponse for a rejection; `severity` FATAL when the connection ends with it, ERROR otherwise.
[[nodiscard]] wire::pg_error pg_error_of(const fence::rejection& why, std::string_view severity,
                                         applied certain = applied::no);

// A statement that fails with this error and does nothing else. Sent in place of a client's statement, so that the server's
// own transaction state follows from it.
[[nodiscard]] std::string failing_statement(const wire::pg_error& e);

}  // namespace fencegate::gate
