// Leases that a sidecar takes, through its API (admin/lease_pages.hpp). It seals them in all places, so that whoever asks
// here has none to seal.
//
// All of it runs on its context's thread.
#pragma once

#include "base/settings.hpp"
#include "lease/issuer.hpp"
#include "lease/local_http.hpp"

#include <boost/asio/io_context.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace fencegate::lease {

// The body of a request about a lease: {"tokens":{"orders":35}}.
[[nodiscard]] std::string tokens_body(const fence::claims_list& claims);

class api_issuer final : public issuer {
 public:
  // `patience`: for each answer, beside what the sidecar is asked to wait. `stop_grace`: of the leases that are asked for.
  api_issuer(boost::asio::io_context& context, settings::address at, std::chrono::milliseconds patience,
             std::chrono::milliseconds stop_grace);

  // "": its leases are sealed already.
  void identify(std::function<void(const answer<std::string>&)> done) override;
  void acquire(const grant_request& wanted, std::function<void(const grant_answer&)> done) override;
  void give_up() override;
  void renew(const term& held, std::function<void(const result<renewal>&)> done) override;
  void release(const term& held, bool unused, std::function<void(const result<void>&)> done) override;
  // These two are for who asks the issuer itself.
  void forget_store(const std::string& resource, const std::string& store,
                    std::function<void(const result<bool>&)> done) override;
  void list(std::function<void(const result<std::vector<lease_entry>>&)> done) override;

 private:
  struct reply;
  using reply_callback = std::function<void(const result<reply>&)>;

  std::shared_ptr<local_http> ask(const char* method, const std::string& target, std::string body,
                                  std::chrono::milliseconds patience, reply_callback done);

  boost::asio::io_context& context_;
  const settings::address at_;
  const std::chrono::milliseconds patience_, stop_grace_;
  std::weak_ptr<local_http> acquiring_;
};

}  // namespace fencegate::lease
