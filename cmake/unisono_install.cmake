# Installs the library, its public headers, the command and the CMake package.
include(CMakePackageConfigHelpers)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/unisono DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_BINARY_DIR}/include/unisono/version.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/unisono)
install(TARGETS unisono EXPORT unisono_export
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(UNISONO_BUILD_TOOLS)
  install(TARGETS unisono_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/unisono)
install(EXPORT unisono_export NAMESPACE unisono:: FILE unisono-targets.cmake
  DESTINATION ${package_dir})
file(WRITE ${PROJECT_BINARY_DIR}/unisono-config.cmake
  "include(\${CMAKE_CURRENT_LIST_DIR}/unisono-targets.cmake)\n")
write_basic_package_version_file(${PROJECT_BINARY_DIR}/unisono-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/unisono-config.cmake
  ${PROJECT_BINARY_DIR}/unisono-config-version.cmake DESTINATION ${package_dir})
