# The Python package's extension module, holdfast._core. One binary for CPython 3.11 and later (the limited API). The
# library is linked into it; HF_PYTHON_SYSTEM links an installed libholdfast instead, as distributions want it.
#
# `pip install .` comes here by way of pyproject.toml. A build for the tests puts the module beside copies of the Python
# files in python/ of the build directory.
find_package(Python 3.11 COMPONENTS Interpreter Development.Module)
if(NOT Python_Development.Module_FOUND)
  if(HF_PYTHON STREQUAL "AUTO")
    message(STATUS "No Python 3.11 with its headers: the Python package is left out")
    return()
  endif()
  message(FATAL_ERROR "The Python package needs Python 3.11 or later with its headers (python3-dev)")
endif()

file(GLOB sources CONFIGURE_DEPENDS python/holdfast/*.c)
add_library(hf_python MODULE ${sources})
target_include_directories(hf_python SYSTEM PRIVATE ${Python_INCLUDE_DIRS})
set_target_properties(hf_python PROPERTIES PREFIX "" OUTPUT_NAME _core SUFFIX .abi3.so C_STANDARD 11
                      C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/python/holdfast)
# The library's threads must not outlive its code.
target_link_options(hf_python PRIVATE -Wl,-z,nodelete)
if(HF_PYTHON_SYSTEM)
  find_package(PkgConfig REQUIRED)
  find_package(Threads REQUIRED)
  pkg_check_modules(HOLDFAST REQUIRED IMPORTED_TARGET holdfast)
  target_link_libraries(hf_python PRIVATE PkgConfig::HOLDFAST Threads::Threads)
  target_compile_definitions(hf_python PRIVATE _GNU_SOURCE)
else()
  target_link_libraries(hf_python PRIVATE holdfast_static hf_compile hf_warnings)
  # What is linked in must not be found by others: a process may have a libholdfast of its own.
  target_link_options(hf_python PRIVATE -Wl,--exclude-libs,ALL)
endif()

file(GLOB modules CONFIGURE_DEPENDS python/holdfast/*.py python/holdfast/*.pyi python/holdfast/py.typed)
add_custom_target(hf_python_files ALL
  COMMAND ${CMAKE_COMMAND} -E copy_if_different ${modules} ${PROJECT_BINARY_DIR}/python/holdfast)
add_dependencies(hf_python hf_python_files)

if(SKBUILD)
  install(TARGETS hf_python LIBRARY DESTINATION holdfast COMPONENT python)
  if(TARGET holdfast_cli)
    install(TARGETS holdfast_cli RUNTIME DESTINATION ${SKBUILD_SCRIPTS_DIR} COMPONENT python)
  endif()
endif()
