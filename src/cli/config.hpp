// Reads the YAML configuration into settings, or says everything that is wrong with it, each at its line and column.
// config/fencegate.yaml explains the keys to operators; cli/config_keys.hpp lists them.
//
// Nothing is ignored: an unknown key, a key given twice or a combination without effect is an error. The process's
// surroundings (variables, files with secrets) are passed in. No message contains a URL, the contents of a file, or what a
// variable holds, but for gate names and the patterns of rules, which are no secrets.
#pragma once

#include "base/result.hpp"
#include "fence/gate_settings.hpp"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::cli {

struct config_error {
  std::string file;
  int line = 0;  // from 1; 0 = the file as a whole
  int column = 0;
  std::string message;

  // "file:line:column: message", without the numbers for the file as a whole.
  [[nodiscard]] std::string to_string() const;
};

// In the order of the file; never empty where it is a result's error.
using config_errors = std::vector<config_error>;
using config_result = boost::system::result<settings::process, config_errors>;
[[noreturn]] void throw_exception_from_error(const config_errors& errors, const boost::source_location&);

// Where `${NAME}` and `password_file` look.
struct environment {
  std::function<std::optional<std::string>(const std::string& name)> variable;
  // The configuration, and files with secrets. Errors: a reason without the path.
  std::function<result<std::string>(const std::string& path)> file;
  // Whether the files of certificates and keys can be read, and then used; not set: nobody looks.
  std::function<result<void>(const std::string& path)> readable{};
  std::function<result<void>(const settings::tls& how)> proof_to_server{};
  std::function<result<void>(const settings::listener_tls& how)> proof_to_clients{};
  // Whether this folder is there; not set: nothing is looked at.
  std::function<bool(const std::string& path)> has_folder{};
  // What an operator has to know of when this certificate is valid; "": nothing.
  std::function<std::string(const std::string& certificate)> validity{};
};
[[nodiscard]] environment process_environment();
// For a pipeline, which has no secrets: a variable that is not set is "1" there, and a file that cannot be read is "none"; but
// for the configuration itself.
[[nodiscard]] environment without_secrets(environment from, std::string config);

// Whether `fencegate serve` has something to do: else the configuration is for hold, lease and marks.
[[nodiscard]] bool serves_anything(const settings::process& config);

// `file_name` is only used in errors.
[[nodiscard]] config_result read_config(std::string_view text, std::string_view file_name, const environment& from);
[[nodiscard]] config_result load_config(const std::string& path, const environment& from);

}  // namespace fencegate::cli
