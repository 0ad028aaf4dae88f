// CUDA's libraries are looked for when they are first needed: where the user says, where the loader looks, in the
// places where toolkits and Python packages put them.
#pragma once
#include <initializer_list>
#include <string>

namespace lutra::cuda {

// Handle of the first of the names that opens; null where none does, `problem` then says in one line what was looked
// for. LUTRA_CUDA_PATH: folders, apart by colons, which come first; each may be a toolkit, a folder of libraries, or
// Python's site-packages.
void* open_library(std::initializer_list<const char*> names, std::string& problem);

// An opened library's functions by name: null without a library, or where it has none (`problem` then says which).
struct Symbols {
  void* library;
  std::string& problem;
  void* operator()(const char* name) const;
};

}  // namespace lutra::cuda
