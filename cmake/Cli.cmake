# The tool: cli/*.c. It is a user of the library like any other and sees only the public header.
file(GLOB sources CONFIGURE_DEPENDS cli/*.c)
if(NOT sources)
  message(STATUS "No cli/*.c: the tool is not built")
  return()
endif()

pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
add_executable(holdfast_cli ${sources})
set_target_properties(holdfast_cli PROPERTIES OUTPUT_NAME holdfast)
target_link_libraries(holdfast_cli PRIVATE holdfast_static PkgConfig::JANSSON)
hf_compile_target(holdfast_cli)
hf_check_includes(holdfast_cli cli MAY_USE jansson)
