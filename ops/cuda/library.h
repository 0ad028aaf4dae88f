// Finds CUDA's libraries when they are first needed: in the user's folders, by the loader, then where toolkits and
// Python packages install them.
#pragma once
#include <initializer_list>
#include <string>

namespace lutra::cuda {

// Opens the first of the names that it finds and returns the handle. Returns null if none opens; `problem` then tells
// in one line what it looked for. The folders of LUTRA_CUDA_PATH, separated by colons, come first. Each may be a
// toolkit, a folder of libraries, or Python's site-packages.
void* open_library(std::initializer_list<const char*> names, std::string& problem);

// Looks up an opened library's functions by name. Returns null without a library, or if it lacks the function
// (`problem` then names it).
struct Symbols {
  void* library;
  std::string& problem;
  void* operator()(const char* name) const;
};

}  // namespace lutra::cuda
