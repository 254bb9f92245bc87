// `fencegate inject`: a Kubernetes manifest with the sidecar of docker/k8s in each of its pods, as a native sidecar. Nothing else
// of the text changes; a pod that has the sidecar keeps it as it is.
#pragma once

#include "base/result.hpp"

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::cli {

struct inject_request {
  std::string path = "-";  // of the manifest; "-": standard input
  std::string image = "fencegate:" FENCEGATE_VERSION;
  std::string config_map = "fencegate";  // which has fencegate.yaml
  std::string secret;                    // whose keys become files in /run/secrets/fencegate; "": none
  std::vector<std::string> env;          // NAME=VALUE, of the sidecar
};

struct injected {
  std::string text;
  std::vector<std::string> notes;  // what became of which pod, and what to look at
};

// Errors name the object, and the line where that is known: nothing was changed then. Pure.
[[nodiscard]] result<injected> inject_into(std::string_view manifest, const inject_request& request);

// The manifest on `out`, notes and errors on `err`. Exit code 0, or 2 with nothing on `out`.
[[nodiscard]] int inject(const inject_request& request, std::istream& in, std::ostream& out, std::ostream& err);

}  // namespace fencegate::cli
