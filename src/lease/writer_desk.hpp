// What is asked about writers whose leases the gates of this process hold, and what they tell, without the HTTP around it.
//
// All of it runs on one thread.
#pragma once

#include "fence/tag.hpp"
#include "lease/writer.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::lease {

// What is told of a writer.
struct writer_view {
  std::string writer;
  writer_phase phase = writer_phase::unknown;
  std::chrono::system_clock::time_point since;  // when that began
  std::vector<std::string> resources;
  fence::claims_list claims{};  // holding
  std::string held_by{};        // who holds the lease; "": nobody, or it is not known
  std::string detail{};         // in words
};

class writer_desk {
 public:
  writer_desk() = default;
  writer_desk(const writer_desk&) = delete;
  writer_desk& operator=(const writer_desk&) = delete;
  virtual ~writer_desk() = default;

  // nullopt of all of these: there is none of this name.
  [[nodiscard]] virtual std::optional<writer_view> of_gate(std::string_view gate) const = 0;
  // A probe of the writer has come.
  virtual std::optional<writer_view> heard(std::string_view writer) = 0;
  virtual std::optional<writer_view> heard_of_gate(std::string_view gate) = 0;
  // A container of the writer was started then.
  virtual std::optional<writer::report> started(std::string_view writer, std::string_view container,
                                                boot_clock::time_point start) = 0;
  // The gate that holds the lease of a resource; "": none.
  [[nodiscard]] virtual std::string holder_of(const std::string& resource) const = 0;
};

}  // namespace fencegate::lease
