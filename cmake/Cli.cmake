# The tool: cli/main.c and its rooms. It is a user of the library like any other: of holdfast it sees only
# the public header. Its rooms are layers as those of src/ are (cmake/Layers.cmake); includes are written
# from cli/ ("run/run.h").
if(NOT EXISTS ${PROJECT_SOURCE_DIR}/cli/main.c)
  message(STATUS "No cli/main.c: the tool is not built")
  return()
endif()

find_package(PkgConfig REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)

# `holdfast serve` is a part that can be left out: then serve/without_serve.c says so.
set(HF_SERVE AUTO CACHE STRING "holdfast serve, which needs libmicrohttpd: AUTO (if that is there), ON or OFF")
set(MICROHTTPD_FOUND FALSE)
if(HF_SERVE STREQUAL "AUTO")
  pkg_check_modules(MICROHTTPD IMPORTED_TARGET libmicrohttpd>=0.9.75)
elseif(HF_SERVE)
  pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd>=0.9.75)
endif()

add_executable(holdfast_cli cli/main.c)

# hf_cli_room(DIR [SEES dir...] [MAY_USE library...])
function(hf_cli_room dir)
  set(target hf_cli_${dir})
  hf_room(${target} cli ${dir} ${ARGN})
  target_link_libraries(${target} PRIVATE PkgConfig::JANSSON)
  target_sources(holdfast_cli PRIVATE $<TARGET_OBJECTS:${target}>)
endfunction()

# "." is cli/cli.h, what every room shares.
hf_cli_room(common SEES . MAY_USE jansson)
hf_cli_room(fleet  SEES . common MAY_USE jansson)
hf_cli_room(hold   SEES . common fleet MAY_USE jansson)
hf_cli_room(run    SEES . common hold MAY_USE jansson)
hf_cli_room(top    SEES . common fleet MAY_USE jansson)
hf_cli_room(watch  SEES . common fleet MAY_USE jansson)
hf_cli_room(doctor SEES . common fleet MAY_USE jansson openssl@tls)
hf_cli_room(history SEES . common MAY_USE jansson)
hf_cli_room(serve  SEES . common fleet history MAY_USE jansson microhttpd)
hf_cli_room(cmd    SEES . common fleet hold run top watch doctor history serve MAY_USE jansson)

get_target_property(sources hf_cli_serve SOURCES)
if(MICROHTTPD_FOUND)
  list(FILTER sources EXCLUDE REGEX "/without_serve\\.c$")
  set_target_properties(hf_cli_serve PROPERTIES SOURCES "${sources}")
  include(cmake/EmbedPage.cmake)
  hf_embed_page(hf_cli_serve cli/serve/page)
  target_link_libraries(hf_cli_serve PRIVATE PkgConfig::MICROHTTPD)
  target_link_libraries(holdfast_cli PRIVATE PkgConfig::MICROHTTPD)
else()
  list(FILTER sources INCLUDE REGEX "/(without_serve\\.c|[a-z_]+\\.h)$")
  set_target_properties(hf_cli_serve PROPERTIES SOURCES "${sources}")
  message(STATUS "No libmicrohttpd: `holdfast serve` is left out")
endif()

set_target_properties(holdfast_cli PROPERTIES OUTPUT_NAME holdfast)
target_link_libraries(holdfast_cli PRIVATE holdfast_static PkgConfig::JANSSON)
hf_view(holdfast_cli cli .)
target_include_directories(holdfast_cli PRIVATE ${HF_VIEWS_DIR}/holdfast_cli)
hf_compile_target(holdfast_cli)
hf_check_includes(holdfast_cli cli MAY_USE jansson)
