// What operators ask of leases, and what they are told, whether by a command with a configuration or by a sidecar.
#pragma once

#include "fence/tag.hpp"
#include "lease/desk.hpp"
#include "lease/issuer.hpp"

#include <boost/system/result.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::lease {

struct operation {
  enum class kind : std::uint8_t {
    show,          // who holds what; of one resource also what each place knows of it
    break_lease,   // takes leases from their holder, seals them everywhere, and releases them
    freeze,        // the same, but nobody has them until they are thawed
    thaw,          // of one resource
    forget_store,  // one that former holders sealed is no more, or has lost its data and its id with them
    move           // gives resources another issuer: while it runs, nobody holds them
  } what = kind::show;
  std::vector<std::string> resources{};             // show: one, or none for all
  std::string issuer{};                             // "" = the configuration's
  std::string reason{};                             // break_lease, freeze
  std::string store{};                              // forget_store: its id
  std::string to{};                                 // move: the new issuer
  bool from_lost = false;                           // move: the former issuer is no more
  std::optional<std::chrono::milliseconds> wait{};  // move: for a holder to end; nullopt: for ever
};

// As commands and the API of leases call them.
[[nodiscard]] std::string_view name_of(operation::kind what);
[[nodiscard]] std::optional<operation::kind> operation_named(std::string_view name);
// It takes one resource at most.
[[nodiscard]] bool is_of_one(operation::kind what);

// What a place knows of a resource.
struct place_entry {
  std::string name;
  std::optional<fence::token> mark{};
  std::string issuer{};   // "" = no lease was sealed there
  std::string problem{};  // it cannot be asked
};

struct moved_entry {
  std::string resource, place;
  std::string what;  // for people
};

struct operation_result {
  std::vector<lease_entry> leases{};  // show
  std::vector<place_entry> places{};  // show of one resource
  fence::claims_list marks{};         // break_lease, freeze: of all places, from here on
  std::vector<moved_entry> moved{};   // move
};
using operation_outcome = boost::system::result<operation_result, lease_refusal>;

// One JSON object: {"leases":[…],"places":[…]}, {"marks":{…}}, {"moved":[…]} or {}.
[[nodiscard]] std::string json_of(operation::kind what, const operation_result& done);
[[nodiscard]] result<operation_result> read_operation_result(std::string_view json);
// One lease of it, with what each place knows.
[[nodiscard]] std::string json_of(const lease_entry& one, const std::vector<place_entry>& places);

// Operators of a sidecar. What is asked goes on to its end when whoever asked has left, as far as it does not wait for a holder.
class operator_desk {
 public:
  using answer = std::function<void(const boost::system::result<std::string, lease_refusal>&)>;  // JSON

  operator_desk() = default;
  operator_desk(const operator_desk&) = delete;
  operator_desk& operator=(const operator_desk&) = delete;
  virtual ~operator_desk() = default;

  // `by`: who asks, for the log. Answers once, later, unless what is returned was dropped.
  [[nodiscard]] virtual desk::call ask(operation asked, std::string by, answer done) = 0;
};

}  // namespace fencegate::lease
