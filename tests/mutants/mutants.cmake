# Tests of the tests: the same program with a fence that does not hold, fencegate_NAME for each tests/mutants/NAME.patch. It is
# linked like fencegate, but for copies of the sources that the patch names, which are patched and compiled in their place: an
# object of the program itself comes before one of a library.
file(GLOB patches CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/mutants/*.patch)
set(FENCEGATE_MUTANTS "")
foreach(patch ${patches})
  get_filename_component(name ${patch} NAME_WE)
  list(APPEND FENCEGATE_MUTANTS ${name})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${patch})
  set(folder ${CMAKE_BINARY_DIR}/mutants/${name})
  file(STRINGS ${patch} files REGEX "^\\+\\+\\+ b/src/")
  list(TRANSFORM files REPLACE "^\\+\\+\\+ b/([^\t]+).*$" "\\1")
  set(originals "")
  add_executable(fencegate_${name})
  foreach(file ${files})
    if(EXISTS ${CMAKE_SOURCE_DIR}/${file})
      # All other objects are those of fencegate: a class must not look otherwise to them.
      if(NOT file MATCHES "\\.cpp$")
        message(FATAL_ERROR "${patch} changes ${file}, which sources include that are not the mutant's; it may change sources, and add files")
      endif()
      list(APPEND originals ${CMAKE_SOURCE_DIR}/${file})
      # It is replaced alone, so it is an object of its own in its library; and is compiled as it is there.
      set_source_files_properties(${CMAKE_SOURCE_DIR}/${file} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
      string(REGEX REPLACE "^src/(.*)/[^/]*$" "fencegate_\\1" library ${file})
      string(REPLACE "/" "_" library ${library})
      target_include_directories(fencegate_${name} PRIVATE $<TARGET_PROPERTY:${library},INCLUDE_DIRECTORIES>)
    endif()
  endforeach()
  list(TRANSFORM files PREPEND ${folder}/ OUTPUT_VARIABLE copies)
  add_custom_command(OUTPUT ${copies}
    COMMAND ${FENCEGATE_PYTHON} ${CMAKE_SOURCE_DIR}/tests/mutants/mutant.py copy ${patch} ${folder}
    DEPENDS ${patch} ${originals} ${CMAKE_SOURCE_DIR}/tests/mutants/mutant.py
    COMMENT "Making the mutant ${name}" VERBATIM)
  # A target of its own waits for no library: a patch that does not apply is told of at once.
  add_custom_target(mutant_${name} DEPENDS ${copies})
  add_dependencies(fencegate_${name} mutant_${name})
  target_sources(fencegate_${name} PRIVATE ${copies})
  target_include_directories(fencegate_${name} PRIVATE ${folder}/src)
  target_link_libraries(fencegate_${name} PRIVATE fencegate_main)
endforeach()
