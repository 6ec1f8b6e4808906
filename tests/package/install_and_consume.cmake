# Installs the build into an empty prefix, then configures, builds and runs the consumer against
# it, and runs the examples and the installed command. Arguments: BUILD, SOURCE, EXAMPLES (the
# folder of those in all languages), WORK, CONFIG, COMPILER, LIBDIR (where libraries lie in the
# prefix), COMMAND (where the command lies in the prefix; empty when it is not built), TRAIN (the
# trainer is built).
cmake_minimum_required(VERSION 3.25)

function(must)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "failed with ${status}: ${command}")
  endif()
endfunction()

file(REMOVE_RECURSE ${WORK})
set(prefix ${WORK}/prefix)
must(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix} --config ${CONFIG})

must(${CMAKE_COMMAND} -S ${SOURCE}/consumer -B ${WORK}/consumer -G Ninja
  -DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_BUILD_TYPE=${CONFIG} -DCMAKE_CXX_COMPILER=${COMPILER})
must(${CMAKE_COMMAND} --build ${WORK}/consumer)
must(${WORK}/consumer/two_ranks)
if(TRAIN)
  must(${WORK}/consumer/train_two_ranks)
endif()

# The examples in C and C++, as their first lines say.
find_program(pkg_config pkg-config REQUIRED)
set(ENV{PKG_CONFIG_PATH} ${prefix}/${LIBDIR}/pkgconfig)
execute_process(COMMAND ${pkg_config} --cflags --libs unisono OUTPUT_VARIABLE flags
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
separate_arguments(flags UNIX_COMMAND "${flags}")
list(APPEND flags -Wall -Wextra -Wpedantic -Werror -Wl,-rpath,${prefix}/${LIBDIR})
set(alone unique_id two_ranks)  # start their ranks themselves
set(launcher_options_recovery --max-restarts 3)
file(GLOB examples ${EXAMPLES}/c/*.c ${EXAMPLES}/cpp/*.cc)
foreach(example IN LISTS examples)
  get_filename_component(name ${example} NAME_WE)
  if(example MATCHES "\\.cc$")
    must(${COMPILER} -std=c++20 ${example} ${flags} -o ${WORK}/${name})
  else()
    must(cc -std=c99 ${example} ${flags} -o ${WORK}/${name})
  endif()
  if(name IN_LIST alone)
    must(${WORK}/${name})
  elseif(COMMAND)
    must(${prefix}/${COMMAND} run -n 3 ${launcher_options_${name}} ${WORK}/${name})
  endif()
endforeach()

if(COMMAND)
  must(${prefix}/${COMMAND} perf all_reduce -n 2 -b 1K -e 64K --budget-ms 1)
endif()

# Nothing of the build or source tree may be named by what users get.
file(GLOB_RECURSE package_files ${prefix}/*.cmake)
foreach(package_file IN LISTS package_files)
  file(READ ${package_file} text)
  foreach(folder IN ITEMS ${BUILD} ${SOURCE})
    string(FIND "${text}" "${folder}" found)
    if(NOT found EQUAL -1)
      message(FATAL_ERROR "${package_file} names ${folder}")
    endif()
  endforeach()
endforeach()
