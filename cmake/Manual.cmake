# Manual pages of section 3, one for each comment of the public header, in <build>/man3. Made while configuring, which
# takes a tenth of a second; without Python there are none, and `man 3 holdfast` is the overview.
if(SKBUILD) # The Python package has none, and its sdist not what makes them.
  return()
endif()
find_package(Python3 COMPONENTS Interpreter QUIET)
if(NOT Python3_FOUND)
  message(STATUS "No Python: the manual pages of the functions are left out")
  return()
endif()
set(HF_MAN3_DIR ${CMAKE_CURRENT_BINARY_DIR}/man3)
set(inputs man/header2man.py man/holdfast.3 include/holdfast/holdfast.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${inputs})
execute_process(
  COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/man/header2man.py
          ${PROJECT_SOURCE_DIR}/include/holdfast/holdfast.h ${HF_MAN3_DIR}
  COMMAND_ERROR_IS_FATAL ANY)
