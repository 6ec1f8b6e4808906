# How every target of this project is made: one place for language level, warnings and sanitizers.

add_library(unisono_options INTERFACE)
target_compile_features(unisono_options INTERFACE cxx_std_20)
target_compile_options(unisono_options INTERFACE
  -Wall -Wextra -Wnon-virtual-dtor -Woverloaded-virtual -Wno-missing-field-initializers
  -ffp-contract=off $<$<BOOL:${UNISONO_WERROR}>:-Werror>
  # g++ 12 sees overlapping copies in std::string's operator+ (its bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
# Looking for undefined behaviour doubles the time to compile. In what is a test's alone it is not
# looked for: targets of folders that set UNISONO_TESTS_ONLY, but for those that compile sources of
# the product. (Of inline functions that both have, the linker keeps either.)
define_property(TARGET PROPERTY UNISONO_TESTS_ONLY INITIALIZE_FROM_VARIABLE UNISONO_TESTS_ONLY)
# Sanitizers leave a target alone that sets this: its option comes last, where it wins.
define_property(TARGET PROPERTY UNISONO_NOT_SANITIZED)
if(UNISONO_SANITIZE)
  target_compile_options(unisono_options INTERFACE
    -fsanitize=${UNISONO_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
    $<$<BOOL:$<TARGET_PROPERTY:UNISONO_TESTS_ONLY>>:-fno-sanitize=undefined>
    $<$<BOOL:$<TARGET_PROPERTY:UNISONO_NOT_SANITIZED>>:-fno-sanitize=all>)
  target_link_options(unisono_options INTERFACE -fsanitize=${UNISONO_SANITIZE})
  if(UNISONO_SANITIZE STREQUAL "thread")
    # Of every fence in Boost g++ says that its thread sanitizer ignores it.
    target_compile_options(unisono_options INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
  endif()
endif()
if(UNISONO_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "UNISONO_FUZZ needs clang with libFuzzer (apt install clang "
      "libclang-rt-14-dev) and not ${CMAKE_CXX_COMPILER_ID}")
  endif()
  target_compile_options(unisono_options INTERFACE -fsanitize=fuzzer-no-link)
endif()
target_include_directories(unisono_options INTERFACE
  ${PROJECT_SOURCE_DIR}/include ${PROJECT_BINARY_DIR}/include
  ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})

# In what follows in this folder and below, sanitizers' builds are not optimised, or are; elsewhere
# the presets say. The address sanitizer's is not: optimised, the same sources take twice as long to
# compile. The thread sanitizer's tests wait for each other and are slow enough.

# unisono_compile_quickly(): for what takes longer to compile than it will ever run.
macro(unisono_compile_quickly)
  if(UNISONO_SANITIZE)
    set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g1")
  endif()
endmacro()

# unisono_optimise(): for what tests compute with for long.
macro(unisono_optimise)
  if(UNISONO_SANITIZE)
    set(CMAKE_CXX_FLAGS_DEBUG "-O1 -g1")
  endif()
endmacro()

# unisono_packable(target): a program that bench/gpu/run.sh takes to another machine, with the
# libraries it needs in the folder lib beside it. RPATH and not RUNPATH: their libraries are found
# there too, and programs around it, such as profilers, are left with their own.
function(unisono_packable target)
  set_target_properties(${target} PROPERTIES
    BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "\$ORIGIN/lib")
  target_link_options(${target} PRIVATE LINKER:--disable-new-dtags)
endfunction()

# unisono_precompile_headers(target): of the standard library, whose headers take a third of the time
# that a source of the library takes to compile. Once for all targets of the same flags, which are
# those of a module and the folder's. ccache, where it is used, does better by itself and cannot see
# through precompiled headers.
function(unisono_precompile_headers target)
  if(CMAKE_CXX_COMPILER_LAUNCHER)
    return()
  endif()
  string(MD5 flags "${CMAKE_CXX_FLAGS_DEBUG}${CMAKE_CXX_FLAGS_RELEASE}${UNISONO_TESTS_ONLY}")
  set(headers unisono_headers_${flags})
  if(NOT TARGET ${headers})
    file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/${headers}.cc CONTENT "")
    add_library(${headers} OBJECT ${PROJECT_BINARY_DIR}/${headers}.cc)
    set_target_properties(${headers} PROPERTIES
      POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
    target_link_libraries(${headers} PRIVATE unisono_options)
    target_precompile_headers(${headers} PRIVATE
      <algorithm> <array> <atomic> <chrono> <complex> <functional> <map> <memory> <mutex> <optional>
      <set> <span> <stdexcept> <string> <thread> <utility> <variant> <vector>)
  endif()
  target_precompile_headers(${target} REUSE_FROM ${headers})
  # g++ 12 takes no precompiled header for one of the system's, and its warnings of these are wrong
  # about std::string's operator+.
  target_compile_options(${target} PRIVATE
    $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-array-bounds;-Wno-stringop-overflow;-Wno-stringop-overread>)
endfunction()

# unisono_module(name SOURCES a.cc ... LINKS targets ... [INTERNAL]): one folder of the library, or
# what of it the tools and tests alone need (INTERNAL): libunisono.so has all others. Its link list
# is its row of the arrow diagram.
function(unisono_module name)
  cmake_parse_arguments(arg "INTERNAL" "" "SOURCES;LINKS" ${ARGN})
  add_library(unisono_${name} OBJECT ${arg_SOURCES})
  set_target_properties(unisono_${name} PROPERTIES
    POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_link_libraries(unisono_${name} PUBLIC unisono_options PRIVATE ${arg_LINKS})
  unisono_precompile_headers(unisono_${name})
  if(arg_INTERNAL)
    set_property(GLOBAL APPEND PROPERTY UNISONO_INTERNAL_MODULES unisono_${name})
  else()
    set_property(GLOBAL APPEND PROPERTY UNISONO_MODULES unisono_${name})
  endif()
endfunction()

# unisono_skipped_test(name LABELS ... WHY text): a test that this build cannot have says so.
function(unisono_skipped_test name)
  cmake_parse_arguments(arg "" "WHY" "LABELS" ${ARGN})
  add_test(NAME ${name} COMMAND sh -c "echo 'SKIPPED: ${name}: ${arg_WHY}'; exit 77")
  set_tests_properties(${name} PROPERTIES LABELS "${arg_LABELS}" SKIP_RETURN_CODE 77)
endfunction()

# unisono_test(name SOURCES ... LABELS ... [PROCESSORS n] [TIMEOUT s] [SINGLE_THREADED] [COMPUTES]):
# one GoogleTest program over the internals; ctest runs it as one test named `name`. Where all that
# it tests is one thread's, the thread sanitizer's build skips it and says so. One that computes for
# longer than it is compiled is optimised in release.
function(unisono_test name)
  cmake_parse_arguments(arg "SINGLE_THREADED;COMPUTES" "PROCESSORS;TIMEOUT" "SOURCES;LABELS;LINKS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE
    ${arg_LINKS} unisono_test_environment unisono_internal GTest::gmock_main)
  if(arg_COMPUTES)  # not with the precompiled headers, which are not
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
  elseif(TARGET unisono_test_headers)
    target_precompile_headers(${name} REUSE_FROM unisono_test_headers)
  endif()
  if(arg_SINGLE_THREADED AND UNISONO_SANITIZE STREQUAL "thread")
    set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
    unisono_skipped_test(${name} LABELS ${arg_LABELS} WHY "it has one thread")
    return()
  endif()
  # `tests_<label>` builds what `ctest -L <label>` runs.
  foreach(label IN LISTS arg_LABELS)
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
    endif()
    add_dependencies(tests_${label} ${name})
  endforeach()
  add_test(NAME ${name} COMMAND ${name})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(UNISONO_SANITIZE)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 3")
  endif()
  if(NOT arg_PROCESSORS)
    set(arg_PROCESSORS 1)
  endif()
  set_tests_properties(${name} PROPERTIES
    LABELS "${arg_LABELS}" TIMEOUT ${arg_TIMEOUT} PROCESSORS ${arg_PROCESSORS})
endfunction()
