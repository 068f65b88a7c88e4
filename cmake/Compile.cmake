# How our code is compiled: three interface targets that every target of ours links.
#
#   hf_compile     the language
#   hf_warnings    the warnings of the house, errors with HF_WERROR
#   hf_sanitizers  HF_SANITIZE, for compiling and for linking

if(NOT CMAKE_C_STANDARD) # C11 is what the code is written in; it is also good C17 and C23.
  set(CMAKE_C_STANDARD 11)
endif()
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# Optimising across files pays, since a call goes through all layers. But a program that links the static library
# may use another compiler: its objects must hold machine code too, which only gcc can do.
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  set(CMAKE_C_COMPILE_OPTIONS_IPO -flto=auto -ffat-lto-objects)
else()
  set(CMAKE_INTERPROCEDURAL_OPTIMIZATION OFF)
endif()
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/lib)

# Empty rather than 1, so that a source that defines it itself does not define it differently.
add_library(hf_compile INTERFACE)
target_compile_definitions(hf_compile INTERFACE $<$<COMPILE_LANGUAGE:C>:_GNU_SOURCE=>)

add_library(hf_warnings INTERFACE)
target_compile_options(hf_warnings INTERFACE
  -Wall -Wextra -Wshadow -Wpointer-arith -Wcast-qual -Wvla
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes> $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>
  $<$<BOOL:${HF_WERROR}>:-Werror>)

add_library(hf_sanitizers INTERFACE)
if(HF_SANITIZE)
  set(flags -fsanitize=${HF_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_options(hf_sanitizers INTERFACE ${flags})
  target_link_options(hf_sanitizers INTERFACE ${flags})
endif()

function(hf_compile_target target)
  target_link_libraries(${target} PRIVATE hf_compile hf_warnings hf_sanitizers)
endfunction()
