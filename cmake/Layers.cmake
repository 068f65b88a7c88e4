# hf_layer(dir [SEES dir...] [MAY_USE library...])
#
# Makes src/<dir>/*.c an object library, hf_<dir> with underscores. Includes are written from src/
# ("base/clock.h"), but no target has src/ in its include path: each has a view, a tree of symbolic links
# to headers in the build directory, that shows its own room and those it SEES. A header that is not in the
# view is not found. A room does not show the rooms inside it: redis is not redis/route.
#
# Two things an include path cannot stop are checked by a small script before the room compiles: paths
# with "..", and foreign headers (hiredis, jansson, ...) in a room that MAY not USE them. openssl@tls
# means that in this room only files called tls* may.

set(HF_SOURCE_DIRS "")
set(HF_VIEWS_DIR ${CMAKE_CURRENT_BINARY_DIR}/views)
set(HF_CHECK_INCLUDES ${CMAKE_CURRENT_LIST_DIR}/check_includes.cmake)
set(HF_LAYERS "")

# hf_view(view top dir...): shows the headers of <top>/<dir> for each dir in the view of that name, and
# hides everything else there. The links are removed one by one: nothing here deletes through a link into
# the sources.
function(hf_view view top)
  set(root ${HF_VIEWS_DIR}/${view})
  set(wanted "")
  foreach(dir IN LISTS ARGN)
    file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${top}/${dir}/*.h)
    file(MAKE_DIRECTORY ${root}/${dir})
    foreach(header IN LISTS headers)
      get_filename_component(name ${header} NAME)
      cmake_path(SET link NORMALIZE ${root}/${dir}/${name})
      list(APPEND wanted ${link})
      if(NOT IS_SYMLINK ${link})
        file(CREATE_LINK ${header} ${link} SYMBOLIC)
      endif()
    endforeach()
  endforeach()
  file(GLOB_RECURSE links ${root}/*.h)
  foreach(link IN LISTS links)
    if(NOT link IN_LIST wanted)
      file(REMOVE ${link})
    endif()
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

# hf_room(target top dir [SEES dir...] [MAY_USE library...]): the object library of <top>/<dir>.
function(hf_room target top dir)
  cmake_parse_arguments(PARSE_ARGV 3 arg "" "" "SEES;MAY_USE")
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${top}/${dir}/*.c)
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${top}/${dir}/*.h)
  if(NOT sources) # A room of headers only; CMake wants something to compile.
    set(sources ${HF_VIEWS_DIR}/${target}_headers_only.c)
    file(CONFIGURE OUTPUT ${sources} CONTENT "extern int ${target}_headers_only;\n")
  endif()

  hf_view(${target} ${top} ${dir} ${arg_SEES})
  add_library(${target} OBJECT ${sources} ${headers})
  target_include_directories(${target} PRIVATE
    ${HF_VIEWS_DIR}/${target} ${PROJECT_SOURCE_DIR}/include)
  hf_compile_target(${target})
  hf_check_includes(${target} ${top}/${dir} MAY_USE ${arg_MAY_USE})
endfunction()

function(hf_layer dir)
  string(REPLACE "/" "_" target hf_${dir})
  hf_room(${target} src ${dir} ${ARGN})
  set(HF_LAYERS ${HF_LAYERS} ${target} PARENT_SCOPE)
  set(HF_SOURCE_DIRS ${HF_SOURCE_DIRS} ${dir} PARENT_SCOPE)
endfunction()
