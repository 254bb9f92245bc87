// A static program cannot look names up: glibc would load libraries for that, of its own version alone. Asio refers to these
// functions wherever it is used; here nothing calls them (lease/local_http.hpp).
#include <netdb.h>

extern "C" {
int getaddrinfo(const char* /*node*/, const char* /*service*/, const addrinfo* /*hints*/, addrinfo** /*found*/) {
  return EAI_FAIL;
}
void freeaddrinfo(addrinfo* /*found*/) {}
int getnameinfo(const sockaddr* /*of*/, socklen_t /*size*/, char* /*host*/, socklen_t /*host_size*/, char* /*service*/,
                socklen_t /*service_size*/, int /*flags*/) {
  return EAI_FAIL;
}
}
