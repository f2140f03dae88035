# The whole CUDA backend on a CPU: the product's host code and kernels, and the tests of tests/cuda,
# compiled as C++ against the emulated runtime.
set(root ${CMAKE_CURRENT_SOURCE_DIR}/../..)
set(generated ${CMAKE_CURRENT_BINARY_DIR}/backend)
set(backend_sources ${root}/src/cuda/backend.cpp ${root}/src/cuda/grouping.cpp
                    ${root}/src/cuda/cluster/cluster.cu ${root}/src/cuda/prepare/prepare.cu
                    ${root}/src/cuda/random.cu ${root}/src/cuda/sm90/launch.cpp
                    ${root}/src/cuda/stage_times.cpp ${root}/src/cuda/staging.cpp
                    ${root}/src/dispatch/explain.cpp
                    ${root}/src/dispatch/plan.cpp)

file(STRINGS ${root}/src/cuda/sm90/config.h rows REGEX "{\"sm90/")
list(LENGTH rows row_count)
math(EXPR last "${row_count} - 1")
foreach(VARIANT RANGE ${last})
  configure_file(${root}/src/cuda/sm90/variant.cu.in ${generated}/variant_${VARIANT}.cpp @ONLY)
  list(APPEND backend_sources ${generated}/variant_${VARIANT}.cpp)
endforeach()

set(VCATTN_BACKEND_INCLUDES "#include \"cuda/backend.h\"\n#include \"cpu/backend.h\"\n")
set(VCATTN_BACKEND_LIST "      &cuda::backend(),\n      &cpu::backend(),\n")
configure_file(${root}/src/dispatch/registry.cpp.in ${generated}/registry.cpp @ONLY)
list(APPEND backend_sources ${generated}/registry.cpp)
set_source_files_properties(${root}/src/cuda/cluster/cluster.cu ${root}/src/cuda/prepare/prepare.cu
                            ${root}/src/cuda/random.cu PROPERTIES LANGUAGE CXX)

add_executable(emu_backend_test
  ${backend_sources} ${root}/tests/cuda/attention_test.cpp ${root}/tests/cuda/dispatch_test.cpp
  ${root}/tests/cuda/extremes_test.cpp
  ${root}/tests/cuda/grouping_test.cpp ${root}/tests/cuda/packed_test.cpp
  ${root}/tests/cuda/prepare_test.cpp ${root}/tests/cuda/rope_test.cpp
  ${root}/tests/cuda/v_smooth_test.cpp
  ${root}/tests/cuda/device_call.cpp
  ${root}/tests/bug_cases/call.cpp ${root}/tests/bug_cases/host_tensor.cpp
  ${root}/tests/bug_cases/tolerance.cpp)
target_include_directories(emu_backend_test PRIVATE ${root}/src/emu/runtime ${root}/src
                                                    ${root}/tests)
target_compile_definitions(emu_backend_test PRIVATE VCATTN_VERSION="${PROJECT_VERSION}"
  VCATTN_EXAMPLES="${root}/examples/data" VCATTN_MORE_CAPTURES="${root}/../shared/data")
target_link_libraries(emu_backend_test PRIVATE
  vcattn_emu_runtime vcattn_core vcattn_cpu vcattn_io fmt::fmt TBB::tbb GTest::gtest_main GTest::gmock)
if(VCATTN_CLI)
  # The command line tool with an emulated GPU.
  add_executable(vcattn_emulated ${backend_sources} ${root}/cli/main.cpp)
  target_include_directories(vcattn_emulated PRIVATE ${root}/src/emu/runtime ${root}/src ${root})
  target_compile_definitions(vcattn_emulated PRIVATE VCATTN_VERSION="${PROJECT_VERSION}")
  target_link_libraries(vcattn_emulated PRIVATE vcattn_cli vcattn_emu_runtime vcattn_core vcattn_cpu)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  add_test(NAME cli.emulated_gpu COMMAND ${Python3_EXECUTABLE} -B -m unittest gpu_test
           WORKING_DIRECTORY ${root}/tests/cli)
  set_tests_properties(cli.emulated_gpu PROPERTIES LABELS emu TIMEOUT 300
                       ENVIRONMENT VCATTN_BINARY=$<TARGET_FILE:vcattn_emulated>)
endif()
# Without the largest shapes, which take minutes here.
gtest_discover_tests(emu_backend_test TEST_PREFIX Emulated. TEST_FILTER "-*ManyKeys*:*Captures*"
                     PROPERTIES LABELS emu TIMEOUT 600 DISCOVERY_TIMEOUT 60)
