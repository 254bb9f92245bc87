// What happens between fork() and exec() of CMD.
#include "hold/guard_process.hpp"

#include <sys/prctl.h>

#include <signal.h>

namespace fencegate::hold {

namespace {

void reset_signals() {
  for (int number = 1; number <= SIGRTMAX; ++number) {
    struct sigaction now {};
    if (::sigaction(number, nullptr, &now) != 0) continue;
    const bool on_purpose = number == SIGHUP || number == SIGINT || number == SIGQUIT;
    if (now.sa_handler == SIG_DFL || (on_purpose && now.sa_handler == SIG_IGN)) continue;
    ::signal(number, SIG_DFL);
  }
  sigset_t none;
  ::sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (const std::string& text : texts) out.push_back(const_cast<char*>(text.c_str()));  // exec() changes none
  out.push_back(nullptr);
  return out;
}

}  // namespace

void become_command(const job_request& request, pid_t guard, pid_t group, int failed) {
  // A guard that is killed takes CMD with it, at once, where CMD is no set-user-ID program. The keeper does the rest.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != guard) ::_exit(125);
  if (::setpgid(0, group) == 0) {
    auto arguments = pointers_to(request.command);
    auto environment = pointers_to(request.environment);
    environ = environment.data();  // execvp() looks into its PATH
    reset_signals();
    ::execvp(arguments.front(), arguments.data());
  }
  const int why = errno;
  (void)!::write(failed, &why, sizeof why);
  ::_exit(125);
}

}  // namespace fencegate::hold
