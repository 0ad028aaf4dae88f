// In: sources. Out: whether NVRTC compiles them to cubins for the GPUs that the project supports.
#pragma once
#include <set>
#include <string>
#include <vector>

namespace lutra {

// Compiles the sources by NVRTC for sm_80 and so on, on all cores, without the disk cache. Returns its errors; empty if
// all compile.
std::string compile_problems(const std::set<std::string>& sources, const std::vector<int>& archs = {80, 90});

// All that Lutra is made for, from Ampere on, as far as this NVRTC knows them.
std::vector<int> all_archs();

}  // namespace lutra
