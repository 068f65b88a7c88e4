# hf_embed_page(target dir)
#
# Compiles every file of <dir> into `target` as
#     const struct page_file page_<name>_<extension> = {.body, .len, .etag};
# for cli/serve/http.c. The etag is a hash of the content, so a browser that has the file does not fetch it again.

set(HF_PAGE2C ${CMAKE_CURRENT_LIST_DIR}/page2c.cmake)

function(hf_embed_page target dir)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${dir}/*.html ${PROJECT_SOURCE_DIR}/${dir}/*.css
       ${PROJECT_SOURCE_DIR}/${dir}/*.js ${PROJECT_SOURCE_DIR}/${dir}/*.svg)
  foreach(file IN LISTS files)
    get_filename_component(name ${file} NAME)
    string(REPLACE "." "_" stem ${name})
    set(out ${CMAKE_CURRENT_BINARY_DIR}/page/${name}.c)
    add_custom_command(
      OUTPUT ${out}
      COMMAND ${CMAKE_COMMAND} -DIN=${file} -DNAME=${name} -DSTEM=${stem} -DOUT=${out} -P ${HF_PAGE2C}
      DEPENDS ${file} ${HF_PAGE2C}
      COMMENT "Embedding ${name}" VERBATIM)
    target_sources(${target} PRIVATE ${out})
  endforeach()
endfunction()
