// Searches for CUDA's libraries.
#include "ops/cuda/library.h"

#include <dlfcn.h>
#include <glob.h>

#include <cstdlib>
#include <sstream>
#include <vector>

namespace lutra::cuda {
namespace {

void add_glob(const std::string& pattern, std::vector<std::string>& folders) {
  glob_t found{};
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = found.gl_pathc; i-- > 0;) folders.emplace_back(found.gl_pathv[i]);  // newer versions sort last
  }
  globfree(&found);
}

std::vector<std::string> named_folders() {
  std::vector<std::string> out;
  const char* path = std::getenv("LUTRA_CUDA_PATH");
  std::stringstream parts(path ? path : "");
  for (std::string folder; std::getline(parts, folder, ':');) {
    if (folder.empty()) continue;
    out.push_back(folder);
    for (const char* within : {"/lib64", "/lib", "/lib/x86_64-linux-gnu", "/targets/x86_64-linux/lib"}) {
      out.push_back(folder + within);
    }
    add_glob(folder + "/nvidia/*/lib", out);
  }
  return out;
}

std::vector<std::string> usual_folders() {
  std::vector<std::string> out;
  add_glob("/usr/local/cuda*/lib64", out);
  add_glob("/opt/cuda*/lib64", out);
  for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const char* root = std::getenv(name);
    if (!root) continue;
    out.push_back(std::string(root) + "/lib");
    add_glob(std::string(root) + "/lib/python3*/site-packages/nvidia/*/lib", out);
  }
  for (const char* root : {"/usr/lib/python3*", "/usr/local/lib/python3*"}) {
    for (const char* packages : {"/dist-packages", "/site-packages"}) {
      add_glob(std::string(root) + packages + "/nvidia/*/lib", out);
    }
  }
  return out;
}

void* open_in(const std::vector<std::string>& folders, std::initializer_list<const char*> names) {
  for (const std::string& folder : folders) {
    for (const char* name : names) {
      if (void* handle = dlopen((folder + "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
    }
  }
  return nullptr;
}

}  // namespace

void* open_library(std::initializer_list<const char*> names, std::string& problem) {
  if (void* handle = open_in(named_folders(), names)) return handle;
  for (const char* name : names) {
    if (void* handle = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return handle;
  }
  if (void* handle = open_in(usual_folders(), names)) return handle;
  problem = *names.begin();
  problem += " was not found (LUTRA_CUDA_PATH may name the folder that holds it)";
  return nullptr;
}

void* Symbols::operator()(const char* name) const {
  void* p = library ? dlsym(library, name) : nullptr;
  if (library && !p) problem = std::string("it has no ") + name;
  return p;
}

}  // namespace lutra::cuda
