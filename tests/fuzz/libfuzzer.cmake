# Builds the fuzz targets with clang and libFuzzer and lets each search for 15 seconds. A script of
# its own because a build tree has one compiler, and the others use the system's.
function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${CMAKE_COMMAND} -S ${SOURCE} -B ${BUILD} -G Ninja -D CMAKE_CXX_COMPILER=${CLANGXX}
    -D CMAKE_BUILD_TYPE=RelWithDebInfo -D VCATTN_SANITIZE=${SANITIZE} -D VCATTN_CLI=OFF
    -D VCATTN_LIBFUZZER=ON -D CMAKE_CXX_FLAGS=-fsanitize=fuzzer-no-link)
run(${CMAKE_COMMAND} --build ${BUILD} --target fuzz_safetensors fuzz_attention)
foreach(target safetensors attention)
  # New finds go to the build tree; the tracked corpus is only read.
  file(MAKE_DIRECTORY ${BUILD}/found/${target})
  run(${BUILD}/tests/fuzz/fuzz_${target} ${BUILD}/found/${target}
      ${SOURCE}/tests/fuzz/corpus/${target} -max_total_time=15 -timeout=20 -rss_limit_mb=4096
      -print_final_stats=1 -artifact_prefix=${BUILD}/)
endforeach()
