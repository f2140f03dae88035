# Compiler settings every target shares.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()

# Equal bits on every machine: a*b+c is fused only where the source says fma.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)
add_compile_options(
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wno-sign-conversion>")
if(NOT SKBUILD)  # pip: what some other compiler warns of must not keep anyone from installing
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Werror>)
endif()

if(VCATTN_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${VCATTN_SANITIZE}>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${VCATTN_SANITIZE})
endif()

if(VCATTN_CUDA)
  # The runtime is linked statically so that one binary runs with any driver of its major version.
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  set(CMAKE_CUDA_ARCHITECTURES OFF)  # each architecture folder names its own target
  enable_language(CUDA)
  # CMake 3.25 knows no CUDA20 dialect: ask for none, and pass the flag ourselves.
  set(CMAKE_CUDA_STANDARD_REQUIRED OFF)
  add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
endif()
