# Run with cmake -P: IN (a script), INCLUDED (what its first line includes, or empty), DEEPER (the same of
# INCLUDED), NAME (the stem of the C name), OUT (the whole script is written there, and as C to OUT.c).
cmake_minimum_required(VERSION 3.22)

# Puts `prelude` in the place of the first line of `text`.
function(hf_put_in_front prelude text ret)
  if(NOT prelude MATCHES "\n$")
    string(APPEND prelude "\n")
  endif()
  string(FIND "${text}" "\n" end)
  math(EXPR end "${end} + 1")
  string(SUBSTRING "${text}" ${end} -1 rest)
  set(${ret} "${prelude}${rest}" PARENT_SCOPE)
endfunction()

file(READ ${IN} text)
if(INCLUDED)
  file(READ ${INCLUDED} prelude)
  if(DEEPER)
    file(READ ${DEEPER} first)
    hf_put_in_front("${first}" "${prelude}" prelude)
  endif()
  hf_put_in_front("${prelude}" "${text}" text)
endif()
file(WRITE ${OUT} "${text}")

# From here on bytes only: hexadecimal digits survive CMake's quoting whatever the script contains.
file(SHA1 ${OUT} sha1)
file(READ ${OUT} hex HEX)
string(LENGTH "${hex}" len)
math(EXPR len "${len} / 2")
string(REGEX REPLACE "(................................)" "\\1\n" rows "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${rows}")
file(WRITE ${OUT}.c
"/* Generated from ${NAME}.lua; do not edit. */
#include \"redis/wire/script.h\"

static const char body[] = {
${bytes}0};
const struct hfi_script hfi_script_${NAME} = {
    .name = \"${NAME}\", .body = body, .len = ${len}, .sha1 = \"${sha1}\"};
")
