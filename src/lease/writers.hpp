// All writers whose leases the gates of this process hold.
#pragma once

#include "lease/writer_desk.hpp"
#include "lease/writer_lease.hpp"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fencegate::lease {

class writers final : public writer_desk {
 public:
  // `gates`: by name, with what each of them holds.
  struct named_gate {
    std::string name;
    std::vector<std::string> resources;
  };
  void add(std::shared_ptr<writer_lease> one, std::vector<named_gate> gates);

  // See writer_lease. `done`: when all are released.
  void start();
  void drain();
  void release(const std::function<void()>& done);

  void superseded(std::string_view gate, const fence::claim& presented);

  [[nodiscard]] std::vector<writer_view> views() const;
  [[nodiscard]] std::optional<writer_view> of_gate(std::string_view gate) const override;
  std::optional<writer_view> heard(std::string_view writer) override;
  std::optional<writer_view> heard_of_gate(std::string_view gate) override;
  std::optional<writer::report> started(std::string_view writer, std::string_view container,
                                        boot_clock::time_point start) override;
  [[nodiscard]] std::string holder_of(const std::string& resource) const override;

 private:
  struct entry {
    std::shared_ptr<writer_lease> lease;
    std::vector<named_gate> gates;
  };
  [[nodiscard]] writer_lease* named(std::string_view writer) const;
  [[nodiscard]] writer_lease* behind(std::string_view gate) const;

  std::vector<entry> all_;
};

}  // namespace fencegate::lease
