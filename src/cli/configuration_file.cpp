#include "cli/configuration_file.hpp"

#include <filesystem>
#include <functional>
#include <system_error>
#include <utility>

namespace fencegate::cli {
namespace {

std::optional<std::size_t> hash_of(const result<std::string>& text) {
  return text ? std::optional(std::hash<std::string>()(*text)) : std::nullopt;
}

// Not a pipe, of which a second reader finds nothing.
bool can_be_read_again(const std::string& path) {
  std::error_code failed;
  const auto is = std::filesystem::status(path, failed).type();
  return is == std::filesystem::file_type::regular || is == std::filesystem::file_type::not_found;
}

}  // namespace

config_result load_served(const std::string& path, const environment& from) {
  auto config = load_config(path, from);
  if (config && !serves_anything(*config))
    return config_errors{{path, 0, 0, "there is nothing to serve: it has neither gates nor leases.listen"}};
  return config;
}

config_result configuration_file::read() {
  const auto text = from_.file(path_);
  if (text) read_ = *text;
  secrets_read_.clear();
  return read(text, secrets_read_, from_);
}

config_result configuration_file::read_secrets() {
  contents secrets;
  environment without_certificates = from_;
  without_certificates.readable = nullptr;
  without_certificates.proof_to_server = nullptr;
  without_certificates.proof_to_clients = nullptr;
  without_certificates.validity = nullptr;
  auto config = read({boost::system::in_place_value, served_}, secrets, std::move(without_certificates));
  read_ = served_;
  secrets_read_ = secrets;
  know(std::move(secrets));
  return config;
}

config_result configuration_file::read(const result<std::string>& text, contents& secrets, environment from) {
  from.file = [&](const std::string& path) -> result<std::string> {
    if (path == path_) return text;
    auto found = from_.file(path);
    secrets[path] = hash_of(found);
    return found;
  };
  return load_(path_, from);
}

void configuration_file::taken_over() {
  served_ = read_;
  know(secrets_read_);
}

void configuration_file::know(contents secrets) {
  secrets_ = std::move(secrets);
  seen_ = secrets_;
}

bool configuration_file::secrets_have_changed() {
  contents now = secrets_;
  for (auto& [path, held] : now)
    if (can_be_read_again(path)) held = hash_of(from_.file(path));
  const bool rests = now == seen_;
  seen_ = std::move(now);
  return rests && seen_ != secrets_;
}

}  // namespace fencegate::cli
