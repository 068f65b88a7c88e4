# Run with cmake -P: DIR (whose *.c and *.h are read), MAY_USE (foreign libraries, comma separated),
# STAMP (a file to touch when all is well; may be empty). What it stops is described in Layers.cmake.

cmake_minimum_required(VERSION 3.22)

# The foreign libraries we know, and what their headers look like between the quotes.
set(header_of_hiredis "^(hiredis/|hiredis\\.h)")
set(header_of_jansson "^jansson")
set(header_of_uthash "^(uthash|utlist|utarray|utstring|utringbuffer|utstack)\\.h")
set(header_of_openssl "^openssl/")

string(REPLACE "," ";" MAY_USE "${MAY_USE}")
set(wrong "")
file(GLOB files ${DIR}/*.[ch])
foreach(file IN LISTS files)
  file(STRINGS ${file} lines REGEX "^[ \t]*#[ \t]*include[ \t]*[<\"]")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^[^<\"]*[<\"]([^>\"]*).*" "\\1" header "${line}")
    if(header MATCHES "(^|/)\\.\\.(/|$)|^/")
      string(APPEND wrong "  ${file}: \"${header}\": write includes from src/, without .. and /\n")
    endif()
    foreach(library hiredis jansson uthash openssl)
      if(header MATCHES "${header_of_${library}}" AND NOT library IN_LIST MAY_USE)
        string(APPEND wrong "  ${file}: \"${header}\": this directory may not use ${library}\n")
      endif()
    endforeach()
  endforeach()
endforeach()

# CMake does not wrap lines that begin with a space.
if(wrong)
  message(FATAL_ERROR "\n${wrong}")
endif()
if(STAMP)
  file(TOUCH ${STAMP})
endif()
