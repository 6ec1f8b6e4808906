# Installs the library, its public headers, the command and the CMake package.
include(CMakePackageConfigHelpers)

if(NOT UNISONO_BUILD_TRAIN)
  set(without_trainer PATTERN train EXCLUDE)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/unisono DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp" ${without_trainer})
install(FILES ${PROJECT_BINARY_DIR}/include/unisono/version.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/unisono)
install(TARGETS unisono EXPORT unisono_export
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
set(dependencies "")
if(UNISONO_BUILD_TRAIN)
  install(TARGETS unisono_train EXPORT unisono_export ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  set(dependencies "include(CMakeFindDependencyMacro)\nfind_dependency(ZLIB)\n")
endif()
if(UNISONO_BUILD_TOOLS)
  install(TARGETS unisono_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/unisono)
install(EXPORT unisono_export NAMESPACE unisono:: FILE unisono-targets.cmake
  DESTINATION ${package_dir})
file(WRITE ${PROJECT_BINARY_DIR}/unisono-config.cmake
  "${dependencies}include(\${CMAKE_CURRENT_LIST_DIR}/unisono-targets.cmake)\n")
write_basic_package_version_file(${PROJECT_BINARY_DIR}/unisono-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/unisono-config.cmake
  ${PROJECT_BINARY_DIR}/unisono-config-version.cmake DESTINATION ${package_dir})

# For builds without CMake. The prefix is found from the file's own place, which may be moved.
file(RELATIVE_PATH UNISONO_PC_UP /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" UNISONO_PC_UP "${UNISONO_PC_UP}")
foreach(folder IN ITEMS LIBDIR INCLUDEDIR)
  set(UNISONO_PC_${folder} "\${prefix}/${CMAKE_INSTALL_${folder}}")
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${folder}}")
    set(UNISONO_PC_${folder} "${CMAKE_INSTALL_${folder}}")
  endif()
endforeach()
configure_file(${PROJECT_SOURCE_DIR}/cmake/unisono.pc.in ${PROJECT_BINARY_DIR}/unisono.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/unisono.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
