# Compiles one file of kernels to a fat binary: cmake -DNVCC=... -DSOURCE=... -DOUTPUT=x.fatbin
# -DARCHITECTURES=80,90 -DINCLUDES=dir,dir -P. What ptxas says about registers and spills is kept in
# x.ptxas, and shown where the compilation fails.
string(REPLACE "," ";" ARCHITECTURES "${ARCHITECTURES}")
string(REPLACE "," ";" INCLUDES "${INCLUDES}")
set(flags)
foreach(architecture IN LISTS ARCHITECTURES)
  list(APPEND flags -gencode arch=compute_${architecture},code=sm_${architecture})
endforeach()
# Newer devices than these compile the newest one's PTX.
list(GET ARCHITECTURES -1 newest)
list(APPEND flags -gencode arch=compute_${newest},code=compute_${newest})
list(LENGTH ARCHITECTURES count)
if(count GREATER 1)
  list(APPEND flags --compress-mode=size)
endif()
list(TRANSFORM INCLUDES PREPEND -I)
cmake_path(REPLACE_EXTENSION OUTPUT ptxas OUTPUT_VARIABLE report)
execute_process(
  COMMAND ${NVCC} -fatbin -std=c++20 --fmad=false --expt-relaxed-constexpr -Xptxas -v
          ${flags} ${INCLUDES} -MD -MF ${OUTPUT}.d -MT ${OUTPUT} ${SOURCE} -o ${OUTPUT}
  ERROR_FILE ${report} RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  file(READ ${report} words)
  message(FATAL_ERROR "${NVCC} failed on ${SOURCE}:\n${words}")
endif()
