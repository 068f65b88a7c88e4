# hf_embed_lua(target dir)
#
# Compiles every <dir>/<name>.lua into `target` as
#     const struct hfi_script hfi_script_<name> = {.name, .body, .len, .sha1};
# and writes what was embedded to <build>/lua/<name>.lua, for redis-cli --eval and the script tests.
# The SHA-1 is the one that SCRIPT LOAD would return, so the library needs no code for it.
#
# A script whose first line is `-- include: <file>.lua` gets the text of that file instead of the line; so
# does that file. A file that others include is not a script itself and is not embedded.

set(HF_LUA_DIR ${CMAKE_CURRENT_BINARY_DIR}/lua)
set(HF_LUA2C ${CMAKE_CURRENT_LIST_DIR}/lua2c.cmake)

# Leaves the path of what `lua` includes in `ret_included`, or nothing.
function(hf_lua_included lua ret_included)
  set(${ret_included} "" PARENT_SCOPE)
  file(STRINGS ${lua} first LIMIT_COUNT 1)
  if(first MATCHES "^-- include: ([A-Za-z0-9_]+\\.lua)[ \t]*$")
    get_filename_component(dir ${lua} DIRECTORY)
    set(${ret_included} ${dir}/${CMAKE_MATCH_1} PARENT_SCOPE)
  endif()
endfunction()

function(hf_embed_lua target dir)
  file(GLOB scripts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${dir}/*.lua)
  # First lines decide the dependencies, so a changed script also triggers a new configuration.
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${scripts})

  set(preludes "")
  foreach(lua IN LISTS scripts)
    hf_lua_included(${lua} included)
    list(APPEND preludes ${included})
  endforeach()

  foreach(lua IN LISTS scripts)
    if(lua IN_LIST preludes)
      continue()
    endif()
    hf_lua_included(${lua} included)
    set(deeper "")
    if(included)
      hf_lua_included(${included} deeper)
    endif()
    get_filename_component(name ${lua} NAME_WE)
    set(whole ${HF_LUA_DIR}/${name}.lua)
    add_custom_command(
      OUTPUT ${whole}.c ${whole}
      COMMAND ${CMAKE_COMMAND} -DIN=${lua} -DINCLUDED=${included} -DDEEPER=${deeper}
              -DNAME=${name} -DOUT=${whole} -P ${HF_LUA2C}
      DEPENDS ${lua} ${included} ${deeper} ${HF_LUA2C}
      COMMENT "Embedding ${name}.lua" VERBATIM)
    target_sources(${target} PRIVATE ${whole}.c)
  endforeach()
endfunction()
