# Run with cmake -P: MANIFEST (what the last install wrote), DESTDIR (as it was given to the install).
# Removes the files that were installed, and the directories that the install created, if they are empty.
cmake_minimum_required(VERSION 3.22)

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

# In reverse order, the contents come before their directory.
cmake_path(REPLACE_FILENAME MANIFEST install_directories.txt OUTPUT_VARIABLE noted)
set(dirs)
if(EXISTS ${noted})
  file(STRINGS ${noted} dirs)
endif()
list(REMOVE_DUPLICATES dirs)
list(SORT dirs ORDER DESCENDING)
foreach(dir IN LISTS dirs)
  file(GLOB left ${dir}/*)
  if(IS_DIRECTORY ${dir} AND NOT left)
    file(REMOVE_RECURSE ${dir})
  endif()
endforeach()
file(REMOVE ${MANIFEST} ${noted})
