# Installs what names the prefix, or lies elsewhere when the prefix is /usr. `source`, `made`, `bin`: see CMakeLists.txt.
set(prefix "${CMAKE_INSTALL_PREFIX}")
if(prefix STREQUAL "/usr")
  set(etc /etc)
  set(zsh ${prefix}/share/zsh/vendor-completions)
else()
  set(etc ${prefix}/etc)
  set(zsh ${prefix}/share/zsh/site-functions)
endif()

set(program ${prefix}/${bin}/fencegate)
set(configuration ${etc}/fencegate/fencegate.yaml)
configure_file(${source}/fencegate.service.in ${made}/fencegate.service @ONLY)
file(INSTALL ${made}/fencegate.service DESTINATION ${prefix}/lib/systemd/system)
file(INSTALL ${made}/zsh/_fencegate ${made}/zsh/_fencegate-hold DESTINATION ${zsh})

# Somebody's own configuration stays. In a package, dpkg sees to that.
if("$ENV{DESTDIR}" STREQUAL "" AND EXISTS ${configuration})
  message(STATUS "Kept: ${configuration}")
else()
  file(INSTALL ${source}/fencegate.yaml DESTINATION ${etc}/fencegate)
endif()
