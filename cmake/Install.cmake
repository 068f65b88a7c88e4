# What `make install` puts where: both libraries, the headers for C and C++, the tool, its completion for shells, the manual pages, and what
# pkg-config and find_package(holdfast) read.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/holdfast)
# Where the shells look for the completion of a command.
set(bash_dir ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
set(zsh_dir ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
set(monitoring_dir ${CMAKE_INSTALL_DATADIR}/holdfast/monitoring)
set(fish_dir ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)

# Directories that are not there yet are noted, so that make uninstall can remove them (cmake/uninstall.cmake).
set(destinations ${CMAKE_INSTALL_BINDIR} ${CMAKE_INSTALL_INCLUDEDIR}/holdfast ${package_dir}
    ${CMAKE_INSTALL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_MANDIR}/man1 ${CMAKE_INSTALL_MANDIR}/man3)
if(TARGET holdfast_cli)
  list(APPEND destinations ${bash_dir} ${zsh_dir} ${fish_dir} ${monitoring_dir})
endif()
install(CODE "set(destinations ${destinations})
set(noted ${CMAKE_BINARY_DIR}/install_directories.txt)")
install(CODE [[
foreach(dir IN LISTS destinations)
  cmake_path(ABSOLUTE_PATH dir BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX})
  set(dir $ENV{DESTDIR}${dir})
  while(NOT EXISTS ${dir})
    file(APPEND ${noted} "${dir}\n")
    cmake_path(GET dir PARENT_PATH dir)
  endwhile()
endforeach()
]])

install(TARGETS holdfast holdfast_static EXPORT holdfast
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/holdfast DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h"
        PATTERN "*.hpp")
if(TARGET holdfast_cli)
  install(TARGETS holdfast_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES completions/holdfast.bash DESTINATION ${bash_dir} RENAME holdfast)
  install(FILES completions/_holdfast DESTINATION ${zsh_dir})
  install(FILES completions/holdfast.fish DESTINATION ${fish_dir})
  install(FILES monitoring/holdfast.rules.yml monitoring/holdfast.json DESTINATION ${monitoring_dir})
endif()

file(GLOB pages CONFIGURE_DEPENDS man/*.[1-8])
foreach(page IN LISTS pages)
  get_filename_component(name ${page} NAME)
  if(HF_MAN3_DIR AND EXISTS ${HF_MAN3_DIR}/${name}) # There, it has the rules of the header.
    continue()
  endif()
  string(REGEX MATCH "[1-8]$" section ${page})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endforeach()

if(HF_MAN3_DIR)
  install(DIRECTORY ${HF_MAN3_DIR}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man3)
endif()

set(private_requirements "")
if(HF_TLS)
  set(private_requirements openssl)
endif()
configure_file(cmake/holdfast.pc.in holdfast.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/holdfast.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(EXPORT holdfast NAMESPACE holdfast:: DESTINATION ${package_dir} FILE holdfastTargets.cmake)
configure_package_config_file(cmake/holdfastConfig.cmake.in holdfastConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(holdfastConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/holdfastConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/holdfastConfigVersion.cmake
        DESTINATION ${package_dir})
