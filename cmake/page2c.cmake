# Run with cmake -P: IN (a file), NAME (its name), STEM (the stem of the C name), OUT (the C file to write).
cmake_minimum_required(VERSION 3.22)

file(SHA256 ${IN} sha256)
string(SUBSTRING ${sha256} 0 32 tag)
file(READ ${IN} hex HEX)
string(LENGTH "${hex}" len)
math(EXPR len "${len} / 2")
string(REGEX REPLACE "(................................)" "\\1\n" rows "${hex}")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "'\\\\x\\1'," bytes "${rows}")
file(WRITE ${OUT}
"/* Generated from ${NAME}; do not edit. */
#include \"serve/serve.h\"

static const char body[] = {
${bytes}0};
const struct page_file page_${STEM} = {.body = body, .len = ${len}, .etag = \"\\\"${tag}\\\"\"};
")
