// The configuration that is served, as it stands in its file and in the files with secrets that it names.
#pragma once

#include "cli/config.hpp"

#include <cstddef>
#include <map>
#include <optional>
#include <string>

namespace fencegate::cli {

// As load_config(); a configuration without gates is an error, too: there is nothing to serve.
[[nodiscard]] config_result load_served(const std::string& path, const environment& from);

class configuration_file {
 public:
  using loader = config_result (*)(const std::string& path, const environment& from);
  configuration_file(std::string path, environment from, loader load = load_served)
      : path_(std::move(path)), from_(std::move(from)), load_(load) {}

  [[nodiscard]] const std::string& path() const { return path_; }

  // As they are now.
  [[nodiscard]] config_result read();
  // The configuration that was taken over, though its file may say something else by now, with the secrets as they are now.
  // Certificates and keys are not looked at: those that cannot be used are another one's business (relay/server_tls.hpp,
  // backend/tls_common.hpp), and hold up no password. REQUIRES: one was.
  [[nodiscard]] config_result read_secrets();
  // What was read last is served from now on.
  void taken_over();

  // A file with a secret holds something else than what is served, and than what read_secrets() has found; and it has held it
  // for two looks: who writes it has finished. Files that can be read only once are not looked at.
  [[nodiscard]] bool secrets_have_changed();

 private:
  // By path: what was read, as a hash; nullopt: it could not be.
  using contents = std::map<std::string, std::optional<std::size_t>>;

  [[nodiscard]] config_result read(const result<std::string>& text, contents& secrets, environment from);
  void know(contents secrets);

  const std::string path_;
  const environment from_;
  const loader load_;
  std::string read_, served_;
  contents secrets_read_;
  contents secrets_, seen_;  // as they are known; at the last look
};

}  // namespace fencegate::cli
