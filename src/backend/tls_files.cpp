#include "backend/tls_files.hpp"

#include "backend/tls_common.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>

namespace fencegate::backend {
namespace {

std::atomic<std::uint64_t> forced_reads{0};

constexpr certificate_validity always{0, std::numeric_limits<std::time_t>::max()};

std::time_t seconds_of(const ASN1_TIME* at) {
  std::tm parts{};
  return ssl().ASN1_TIME_to_tm(at, &parts) == 1 ? ::timegm(&parts) : 0;
}

std::string date_of(std::time_t at) {
  std::tm parts{};
  ::gmtime_r(&at, &parts);
  std::array<char, 32> text{};
  const auto bytes = std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &parts);
  return {text.data(), bytes};
}

std::string why_not_valid(const certificate_validity& of, std::time_t now) {
  if (now < of.from) return "the certificate is not valid before " + date_of(of.from);
  return "the certificate has expired on " + date_of(of.until);
}

}  // namespace

result<certificate_validity> validity_of(const std::string& certificate) {
  if (const auto& library = load_openssl(); !library) return library.error();
  ssl().ERR_clear_error();
  const std::unique_ptr<BIO, decltype(ssl().BIO_free)> file(ssl().BIO_new_file(certificate.c_str(), "r"),
                                                            ssl().BIO_free);
  if (file == nullptr) return detail::unusable(certificate);
  certificate_validity out = always;
  std::size_t found = 0;
  while (X509* const one = ssl().PEM_read_bio_X509(file.get(), nullptr, nullptr, nullptr)) {
    out.from = std::max(out.from, seconds_of(ssl().X509_get0_notBefore(one)));
    out.until = std::min(out.until, seconds_of(ssl().X509_get0_notAfter(one)));
    ssl().X509_free(one);
    ++found;
  }
  ssl().ERR_clear_error();  // the end of the file
  if (found == 0) return error{"TLS: there is no certificate in " + certificate};
  return out;
}

std::string validity_problem(const std::string& certificate, std::time_t now) {
  const auto found = validity_of(certificate);
  if (!found) return {};
  if (!found->holds_at(now)) return why_not_valid(*found, now);
  if (found->until - now >= certificate_warning_seconds) return {};
  return "the certificate expires on " + date_of(found->until);
}

void read_tls_files_again() { forced_reads.fetch_add(1); }

tls_files::state tls_files::look() const {
  state out{{}, forced_reads.load()};
  for (const auto& path : paths_) out.files.push_back(stamp_of(path));
  return out;
}

result<tls_files::used> tls_files::current() {
  const std::lock_guard lock(mutex_);
  auto now = look();
  if (loaded_ != nullptr && now == loaded_of_) return used{loaded_};
  const auto time = std::time(nullptr);
  auto fresh = make_();
  // Both are of the same files, or the next use reads them again.
  const auto valid = certificate_.empty() ? result<certificate_validity>(always) : validity_of(certificate_);
  std::string why;
  if (!fresh)
    why = fresh.error().message;
  else if (!valid)
    why = valid.error().message;
  else if (loaded_ != nullptr && !valid->holds_at(time) && valid_.holds_at(time))
    why = why_not_valid(*valid, time);
  if (why.empty()) {
    const auto happened = loaded_ == nullptr ? used::what::same : used::what::replaced;
    loaded_ = std::move(*fresh);
    valid_ = *valid;
    loaded_of_ = std::move(now);
    return used{loaded_, happened};
  }
  if (loaded_ == nullptr) return error{why};
  // The next use tries again: what was missing may have been a file descriptor.
  const bool is_news = now != refused_;
  refused_ = std::move(now);
  return used{loaded_, is_news ? used::what::kept : used::what::same, is_news ? why : std::string()};
}

}  // namespace fencegate::backend
