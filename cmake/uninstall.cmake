# Run with cmake -P: MANIFEST (what the last install wrote), DESTDIR (as it was given to the install).
# Removes the files that were installed, and the directories that only they lived in.
cmake_minimum_required(VERSION 3.25)

if(NOT EXISTS ${MANIFEST})
  message(FATAL_ERROR "Nothing to uninstall: ${MANIFEST} is written by make install.")
endif()

file(STRINGS ${MANIFEST} files)
foreach(file IN LISTS files)
  if(EXISTS ${DESTDIR}${file} OR IS_SYMLINK ${DESTDIR}${file})
    message(STATUS "Removing ${DESTDIR}${file}")
    file(REMOVE ${DESTDIR}${file})
  endif()
endforeach()

# include/holdfast and lib/cmake/holdfast are ours; everything above them is shared with others.
foreach(file IN LISTS files)
  get_filename_component(dir ${DESTDIR}${file} DIRECTORY)
  get_filename_component(name ${dir} NAME)
  file(GLOB left ${dir}/*)
  if(name STREQUAL "holdfast" AND IS_DIRECTORY ${dir} AND NOT left)
    file(REMOVE_RECURSE ${dir})
  endif()
endforeach()
file(REMOVE ${MANIFEST})
