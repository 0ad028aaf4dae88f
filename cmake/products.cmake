# Links the products from the object libraries: the executable lutra, liblutra.so (the link lutra.so is the Lua module),
# and lutra-opt. A product whose sources do not exist is left out.

# Embeds stdlib/*.lua as byte arrays: sources and bytecode.
# Static, so that only the needed objects are linked.
add_library(lutra_embed_parts STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:ops_core> $<TARGET_OBJECTS:vm_bytecode>)
add_executable(lutra-embed-stdlib EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/vm/tools/embed_stdlib.cc)
target_include_directories(lutra-embed-stdlib PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(lutra-embed-stdlib SYSTEM PRIVATE ${LUAJIT_INCLUDE_DIRS})
target_link_libraries(lutra-embed-stdlib PRIVATE lutra_embed_parts ${LUAJIT_STATIC} m ${CMAKE_DL_LIBS})
file(GLOB_RECURSE stdlib_files RELATIVE ${PROJECT_SOURCE_DIR}/stdlib CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/stdlib/*.lua)
list(SORT stdlib_files)
list(TRANSFORM stdlib_files PREPEND ${PROJECT_SOURCE_DIR}/stdlib/ OUTPUT_VARIABLE stdlib_paths)
set(stdlib_cc ${PROJECT_BINARY_DIR}/stdlib.cc)
add_custom_command(
  OUTPUT ${stdlib_cc}
  COMMAND ${CMAKE_COMMAND} -E env ASAN_OPTIONS=detect_leaks=0
    ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:lutra-embed-stdlib> ${stdlib_cc} ${PROJECT_SOURCE_DIR}/stdlib
    ${stdlib_files}
  DEPENDS ${stdlib_paths} lutra-embed-stdlib
  VERBATIM)
add_library(stdlib OBJECT ${stdlib_cc})
target_include_directories(stdlib PRIVATE ${PROJECT_SOURCE_DIR})
target_sources(lutra_objects INTERFACE $<TARGET_OBJECTS:stdlib>)

# The library links no LuaJIT: the program that loads it brings the lua_* symbols. `require "lutra"` opens it by the
# link lutra.so.
if(TARGET vm_host AND TARGET vm_bind)
  file(STRINGS ${PROJECT_SOURCE_DIR}/vm/capi/lutra.h abi REGEX "#define LUTRA_ABI [0-9]+")
  string(REGEX REPLACE ".* " "" LUTRA_ABI "${abi}")
  add_library(lutra_shared SHARED)
  set_target_properties(lutra_shared PROPERTIES OUTPUT_NAME lutra LINKER_LANGUAGE CXX
    VERSION ${PROJECT_VERSION} SOVERSION ${LUTRA_ABI})
  target_link_libraries(lutra_shared PRIVATE lutra_objects)
  set(exports ${PROJECT_SOURCE_DIR}/vm/capi/lutra.map)
  target_link_options(lutra_shared PRIVATE -Wl,-Bsymbolic -Wl,-z,nodelete -Wl,--version-script=${exports})
  set_target_properties(lutra_shared PROPERTIES LINK_DEPENDS ${exports})
  add_custom_command(TARGET lutra_shared POST_BUILD
    COMMAND ${CMAKE_COMMAND} -E create_symlink liblutra.so ${PROJECT_BINARY_DIR}/lutra.so)
endif()

# The executable contains all of LuaJIT and exports it, so that Lua modules in C find every lua_* symbol.
file(GLOB repl_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/vm/repl/*.cc)
if(repl_sources)
  add_executable(lutra ${repl_sources})
  target_include_directories(lutra SYSTEM PRIVATE ${LUAJIT_INCLUDE_DIRS})
  target_link_libraries(lutra PRIVATE lutra_objects -Wl,--whole-archive ${LUAJIT_STATIC} -Wl,--no-whole-archive m)
  set_target_properties(lutra PROPERTIES ENABLE_EXPORTS ON)
  # A bundle has its libraries in lib, beside bin (scripts/bundle). --disable-new-dtags makes the loader look there for
  # the libraries of those libraries, too.
  set_target_properties(lutra PROPERTIES BUILD_RPATH "$ORIGIN/../lib")
  target_link_options(lutra PRIVATE -Wl,--disable-new-dtags)
endif()

# The compiler without Lua, which runs passes on text.
if(EXISTS ${PROJECT_SOURCE_DIR}/jit/tools/lutra_opt.cc)
  set(compiler_objects $<TARGET_OBJECTS:interpreter_image>)
  foreach(name ${LUTRA_FOLDERS})
    if(name MATCHES "^(ops|jit)(_|$)")
      list(APPEND compiler_objects $<TARGET_OBJECTS:${name}>)
    endif()
  endforeach()
  add_executable(lutra-opt jit/tools/lutra_opt.cc ${compiler_objects})
  target_include_directories(lutra-opt PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(lutra-opt PRIVATE asmjit::asmjit ZLIB::ZLIB Threads::Threads ${CMAKE_DL_LIBS})
endif()
