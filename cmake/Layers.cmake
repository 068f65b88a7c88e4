# hf_layer(target DIR dir [SEES dir...] [MAY_USE library...])
#
# Makes src/<dir>/*.c an object library. Includes are written from src/ ("base/clock.h"), but no
# target has src/ in its include path: each has a view, a directory of symbolic links in the build
# tree, that shows its own layer and those it SEES. A header that is not in the view is not found.
#
# Two things an include path cannot stop are checked by a small script before the layer compiles: paths
# with "..", and foreign headers (hiredis, jansson, ...) in a layer that MAY not USE them. hiredis@resp
# means that in this layer only files called resp* may.

set(HF_SOURCE_DIRS base engine net redis redis/route zk scheme survey core joint api)
set(HF_VIEWS_DIR ${CMAKE_CURRENT_BINARY_DIR}/layers)
set(HF_CHECK_INCLUDES ${CMAKE_CURRENT_LIST_DIR}/check_includes.cmake)
set(HF_LAYERS "")

# Shows src/<dir> for each dir in the view of that name, and hides everything else there. The links
# are only ever removed one by one: nothing here deletes through a link into the sources.
function(hf_view view)
  set(root ${HF_VIEWS_DIR}/${view})
  set(shown ${ARGN})
  foreach(dir IN LISTS HF_SOURCE_DIRS)
    if(IS_SYMLINK ${root}/${dir} AND NOT dir IN_LIST shown)
      file(REMOVE ${root}/${dir})
    endif()
  endforeach()

  list(SORT shown) # "redis" before "redis/route", which it already shows.
  foreach(dir IN LISTS shown)
    get_filename_component(parent ${root}/${dir} DIRECTORY)
    if(IS_SYMLINK ${parent})
      continue()
    endif()
    file(MAKE_DIRECTORY ${parent})
    file(CREATE_LINK ${PROJECT_SOURCE_DIR}/src/${dir} ${root}/${dir} SYMBOLIC)
  endforeach()
endfunction()

# Makes `target` wait for the check of the includes in the files of `dir` (from the top of the tree).
function(hf_check_includes target dir)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "" "MAY_USE")
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${dir}/*.[ch])
  list(JOIN arg_MAY_USE "," may_use)
  set(stamp ${HF_VIEWS_DIR}/${target}.checked)
  add_custom_command(
    OUTPUT ${stamp}
    COMMAND ${CMAKE_COMMAND} -DDIR=${PROJECT_SOURCE_DIR}/${dir} -DMAY_USE=${may_use}
            -DSTAMP=${stamp} -P ${HF_CHECK_INCLUDES}
    DEPENDS ${files} ${HF_CHECK_INCLUDES}
    COMMENT "Checking the includes of ${dir}" VERBATIM)
  add_custom_target(${target}_includes DEPENDS ${stamp})
  add_dependencies(${target} ${target}_includes)
endfunction()

function(hf_layer target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "DIR" "SEES;MAY_USE")
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${arg_DIR}/*.c)
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${arg_DIR}/*.h)
  if(NOT sources) # A layer of headers only; CMake wants something to compile.
    set(sources ${HF_VIEWS_DIR}/${target}_headers_only.c)
    file(CONFIGURE OUTPUT ${sources} CONTENT "extern int ${target}_headers_only;\n")
  endif()

  hf_view(${target} ${arg_DIR} ${arg_SEES})
  add_library(${target} OBJECT ${sources} ${headers})
  target_include_directories(${target} PRIVATE
    ${HF_VIEWS_DIR}/${target} ${PROJECT_SOURCE_DIR}/include)
  hf_compile_target(${target})
  hf_check_includes(${target} src/${arg_DIR} MAY_USE ${arg_MAY_USE})

  set(HF_LAYERS ${HF_LAYERS} ${target} PARENT_SCOPE)
endfunction()
