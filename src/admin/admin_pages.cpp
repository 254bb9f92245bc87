#include "admin/admin_pages.hpp"

#include "admin/metrics_page.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <chrono>

namespace fencegate::admin {
namespace {

// Clients, or this listener's own peers, were turned away for want of file descriptors a moment ago.
bool is_short_of_files(const metrics::process& process) {
  const std::chrono::seconds moment{5};
  return process.files_short.within(moment) ||
         std::any_of(process.gates.begin(), process.gates.end(),
                     [moment](const auto& g) { return g->files_short.within(moment); });
}

page_answer text_answer(unsigned status, std::string body) {
  page_answer a;
  a.status = status;
  a.body = std::move(body);
  return a;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

// "name:port" or "[v6]:port" without its port and brackets; nullopt when it is neither. The port is not compared: it
// differs behind a port-forward.
std::optional<std::string_view> host_name(std::string_view host) {
  std::string_view name;
  std::string_view rest;
  if (!host.empty() && host[0] == '[') {
    const auto end = host.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    name = host.substr(1, end - 1);
    rest = host.substr(end + 1);
    if (name.find(':') == std::string_view::npos) return std::nullopt;
  } else {
    name = host.substr(0, host.find(':'));
    rest = host.substr(name.size());
  }
  const bool port_only = rest.empty() || (rest[0] == ':' && std::all_of(rest.begin() + 1, rest.end(),
                                                                        [](char c) { return c >= '0' && c <= '9'; }));
  if (name.empty() || !port_only) return std::nullopt;
  return name;
}

bool names_this_host(std::string_view host, const settings::address& listen) {
  const auto name = host_name(host);
  if (!name) return false;
  for (std::string_view known : {std::string_view("localhost"), std::string_view("127.0.0.1"), std::string_view("::1"),
                                 std::string_view(listen.host)}) {
    if (equal_ignoring_case(*name, known)) return true;
  }
  return false;
}

std::optional<page_answer> refuse_stranger(const std::string& page, const page_request& request,
                                           const settings::address& listen) {
  const auto why = why_stranger(page, request, listen);
  if (!why) return std::nullopt;
  return text_answer(403, *why + "\n");
}

page_answer state_page(std::string_view state) {
  return text_answer(state == "ready" ? 200 : 503, std::string(state) + "\n");
}

page_answer quit_page(const page_request& request, const settings::address& listen) {
  if (auto refused = refuse_stranger("/quit", request, listen)) return std::move(*refused);
  page_answer a = text_answer(200, "quitting\n");
  a.quit = true;
  return a;
}

page_answer reload_page(const page_request& request, const settings::address& listen) {
  if (auto refused = refuse_stranger("/reload", request, listen)) return std::move(*refused);
  page_answer a;
  a.reload = true;
  return a;
}

page_answer marks_page(const page_request& request, const settings::address& listen) {
  if (auto refused = refuse_stranger("/.fencegate/marks", request, listen)) return std::move(*refused);
  page_answer a;
  a.marks = true;
  return a;
}

page_answer not_allowed(std::string_view allow) {
  page_answer a = text_answer(405, "method not allowed here; allowed: " + std::string(allow) + "\n");
  a.allow = allow;
  return a;
}

// An address of IPv4 or IPv6: no name, which somebody could let mean another host from one moment to the next.
bool is_literal(std::string_view name) {
  in6_addr any{};
  const std::string text(name);
  return inet_pton(AF_INET, text.c_str(), &any) == 1 || inet_pton(AF_INET6, text.c_str(), &any) == 1;
}

}  // namespace

std::string_view process_state(const metrics::process& process) {
  if (process.draining.value() != 0) return "draining";
  if (!process.ready.load()) return "starting";
  return is_short_of_files(process) ? "out of file descriptors" : "ready";
}

bool names_an_address(const page_request& request, const settings::address& listen) {
  if (!request.host) return true;  // of HTTP/1.0, which no browser speaks
  const auto name = host_name(*request.host);
  return name && (is_literal(*name) || names_this_host(*request.host, listen));
}

std::optional<std::string> why_stranger(std::string_view what, const page_request& request,
                                        const settings::address& listen) {
  const std::string name(what);
  if (!request.from_loopback) return name + " is for peers on loopback only";
  if (request.from_browser) return name + " is not for browsers";
  if (!request.host || !names_this_host(*request.host, listen))
    return name + ": Host must be localhost, 127.0.0.1, [::1] or the listen address";
  return std::nullopt;
}

page_answer answer_page(const page_request& request, const metrics::process& process, const settings::address& listen,
                        bool marks) {
  const std::string_view path = request.target.substr(0, request.target.find('?'));
  if (path == "/quit") return request.method == "POST" ? quit_page(request, listen) : not_allowed("POST");
  if (path == "/reload") return request.method == "POST" ? reload_page(request, listen) : not_allowed("POST");
  if (marks && path.starts_with("/.fencegate/marks/")) return marks_page(request, listen);
  if (path != "/livez" && path != "/readyz" && path != "/metrics") {
    return text_answer(404, "no such page; there are / /livez /readyz /metrics /api/v1/status\n");
  }
  if (request.method != "GET" && request.method != "HEAD") return not_allowed("GET, HEAD");

  if (path == "/livez") return text_answer(200, "alive\n");
  if (path == "/readyz") return state_page(process_state(process));
  page_answer a = text_answer(200, metrics_page(process));
  a.content_type = "text/plain; version=0.0.4; charset=utf-8";
  return a;
}

}  // namespace fencegate::admin
