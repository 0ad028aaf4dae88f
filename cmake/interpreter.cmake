# Builds lutra-ptx, which compiles the GPU interpreter of loop IR (jit/codegen/cuda/interpreter.h) by NVRTC, and an
# object with its output. lutra-ptx looks for NVRTC in LUTRA_NVRTC_PATH, in the folder of scripts/nvrtc, and where Lutra
# looks (ops/cuda/library.h: the loader's path, toolkits, Python's packages). Without NVRTC the object is empty, and
# Lutra compiles the interpreter at first use; lutra-ptx prints which it is. All presets share the output, in
# build/images.
set(LUTRA_NVRTC_PATH "$ENV{LUTRA_CUDA_PATH}" CACHE STRING
  "Folders, separated by colons, where lutra-ptx looks for NVRTC first")
set(parts "")
foreach(name ops_core ops_cuda jit_background jit_loop jit_device jit_codegen_cuda)
  list(APPEND parts $<TARGET_OBJECTS:${name}>)
endforeach()
add_library(lutra_ptx_parts STATIC EXCLUDE_FROM_ALL ${parts})  # static, so that only the needed objects are linked
add_executable(lutra-ptx EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/jit/codegen/cuda/tools/lutra_ptx.cc)
target_include_directories(lutra-ptx PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(lutra-ptx PRIVATE lutra_ptx_parts ZLIB::ZLIB Threads::Threads ${CMAKE_DL_LIBS})
set(image ${PROJECT_BINARY_DIR}/interpreter_image.cc)
add_custom_command(OUTPUT ${image}
  COMMAND ${CMAKE_COMMAND} -E env ASAN_OPTIONS=detect_leaks=0
    "LUTRA_CUDA_PATH=${LUTRA_NVRTC_PATH}:${PROJECT_SOURCE_DIR}/build/nvrtc"
    ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:lutra-ptx> ${image} ${PROJECT_SOURCE_DIR}/build/images
  DEPENDS lutra-ptx VERBATIM)
add_library(interpreter_image OBJECT ${image})
target_include_directories(interpreter_image PRIVATE ${PROJECT_SOURCE_DIR})
