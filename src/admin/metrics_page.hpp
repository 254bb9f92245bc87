// The Prometheus text page. The names and labels in metrics_page.cpp are a contract with users: dashboards and alerts
// are written against them. Resource names are no labels: their number has no bound.
#pragma once

#include "base/metrics.hpp"

#include <string>

namespace fencegate::admin {

// Text exposition format 0.0.4. Reads relaxed atomics: stats on one page may be a few requests apart. What the kernel
// does not tell about the process (no /proc) is left out.
[[nodiscard]] std::string metrics_page(const metrics::process& process);

}  // namespace fencegate::admin
