# Installs the executable, the library and Lua module, headers, sources of the standard library, a CMake package
# (find_package(Lutra), target Lutra::lutra), pkg-config's lutra.pc, a manual page and completion for bash.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS lutra RUNTIME)
install(TARGETS lutra_shared EXPORT LutraTargets LIBRARY)
# A stock LuaJIT finds this link by `require "lutra"` if the prefix is /usr or LUA_CPATH names the folder.
install(CODE "
  set(modules \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/lua/5.1\")
  file(MAKE_DIRECTORY \"\${modules}\")
  file(CREATE_LINK \"../../$<TARGET_SONAME_FILE_NAME:lutra_shared>\" \"\${modules}/lutra.so\" SYMBOLIC)")
install(FILES vm/capi/lutra.h vm/capi/lutra.hpp TYPE INCLUDE)
install(DIRECTORY stdlib/ DESTINATION ${CMAKE_INSTALL_DATADIR}/lutra/stdlib FILES_MATCHING PATTERN "*.lua")
install(FILES README.md CHANGELOG.md CONTRIBUTING.md LICENSE TYPE DOC)
install(DIRECTORY docs TYPE DOC FILES_MATCHING PATTERN "*.md")
install(DIRECTORY scripts/hosts DESTINATION ${CMAKE_INSTALL_DOCDIR}/scripts)

set_target_properties(lutra_shared PROPERTIES EXPORT_NAME lutra)
target_include_directories(lutra_shared INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Lutra)
install(EXPORT LutraTargets NAMESPACE Lutra:: DESTINATION ${package})
configure_package_config_file(cmake/LutraConfig.cmake.in ${PROJECT_BINARY_DIR}/LutraConfig.cmake
  INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/LutraConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/LutraConfig.cmake ${PROJECT_BINARY_DIR}/LutraConfigVersion.cmake
  DESTINATION ${package})

# `cmake --install --prefix` may name another prefix than the configuration.
set(at @)
configure_file(cmake/lutra.pc.in ${PROJECT_BINARY_DIR}/lutra.pc @ONLY)
install(CODE "
  file(READ \"${PROJECT_BINARY_DIR}/lutra.pc\" text)
  string(REPLACE \"@prefix@\" \"\${CMAKE_INSTALL_PREFIX}\" text \"\${text}\")
  file(WRITE \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/pkgconfig/lutra.pc\" \"\${text}\")")
install(FILES docs/lutra.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES docs/lutra.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME lutra)
