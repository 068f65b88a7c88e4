# The benchmarks: each bench/*.c is a program in <build>/bin, run by bench/run.
file(GLOB sources CONFIGURE_DEPENDS bench/*.c)
foreach(source IN LISTS sources)
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE holdfast_static hiredis Threads::Threads m)
  hf_compile_target(${name})
endforeach()
