#include "admin/status_pages.hpp"

#include "admin/status_desk.hpp"
#include "admin/status_html.hpp"
#include "base/random_id.hpp"

#include <string>
#include <string_view>
#include <utility>

namespace fencegate::admin {
namespace {

// `{{name}}` in the page.
void fill_in(std::string& page, std::string_view name, std::string_view text) {
  const std::string place = "{{" + std::string(name) + "}}";
  for (auto at = page.find(place); at != std::string::npos; at = page.find(place, at + text.size()))
    page.replace(at, place.size(), text);
}

// The status stands in the page, so that it is whole when it is first seen.
page_answer html_page(status_desk& desk) {
  const std::string nonce = random_id();
  std::uint64_t all = 0;
  page_answer out;
  out.content_type = "text/html; charset=utf-8";
  out.body = status_html();
  fill_in(out.body, "nonce", nonce);
  fill_in(out.body, "status", json_in_html(desk.json_since(all)));
  out.content_security_policy = "default-src 'none'; script-src 'nonce-" + nonce + "'; style-src 'nonce-" + nonce +
                                "'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                                "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
  return out;
}

page_answer json_page(status_desk& desk) {
  std::uint64_t all = 0;
  page_answer out;
  out.content_type = "application/json";
  out.body = desk.json_since(all);
  return out;
}

}  // namespace

std::optional<page_answer> answer_status(const page_request& request, status_desk& desk,
                                         const settings::address& listen) {
  const std::string_view path = request.target.substr(0, request.target.find('?'));
  const bool events = path == "/api/v1/status/events";
  if (path != "/" && path != "/api/v1/status" && !events) return std::nullopt;
  page_answer out;
  if (request.method != "GET" && (events || request.method != "HEAD")) {
    out.status = 405;
    out.allow = events ? "GET" : "GET, HEAD";
    out.body = "method not allowed here; allowed: " + std::string(out.allow) + "\n";
  } else if (!request.from_loopback) {
    out.status = 403;
    out.body = "this page is for peers on loopback only; kubectl port-forward and ssh -L bring it to others\n";
  } else if (!names_an_address(request, listen)) {
    out.status = 403;
    out.body = "Host must be an address, localhost or the listen address\n";
  } else if (events) {
    out.events = true;
  } else {
    out = path == "/" ? html_page(desk) : json_page(desk);
  }
  return out;
}

}  // namespace fencegate::admin
