// Finds the build id in the notes of the loaded object.
#include "ops/core/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstring>

namespace lutra {
namespace {

struct Search {
  uintptr_t address;  // an address inside the object
  std::string id;
};

std::string id_among(const char* notes, size_t bytes) {
  const auto padded = [](size_t n) { return (n + 3) / 4 * 4; };
  for (size_t at = 0; at + sizeof(ElfW(Nhdr)) <= bytes;) {
    ElfW(Nhdr) note;
    std::memcpy(&note, notes + at, sizeof note);
    const char* name = notes + at + sizeof note;
    const char* data = name + padded(note.n_namesz);
    if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
      std::string id;
      for (size_t i = 0; i < note.n_descsz; i++) {
        const auto byte = static_cast<unsigned char>(data[i]);
        id += "0123456789abcdef"[byte >> 4];
        id += "0123456789abcdef"[byte & 15];
      }
      return id;
    }
    at += sizeof note + padded(note.n_namesz) + padded(note.n_descsz);
  }
  return "";
}

int look(dl_phdr_info* object, size_t, void* given) {
  Search& search = *static_cast<Search*>(given);
  bool ours = false;
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr)& p = object->dlpi_phdr[i];
    const uintptr_t begin = object->dlpi_addr + p.p_vaddr;
    ours |= p.p_type == PT_LOAD && search.address >= begin && search.address < begin + p.p_memsz;
  }
  for (int i = 0; ours && i < object->dlpi_phnum && search.id.empty(); i++) {
    const ElfW(Phdr)& p = object->dlpi_phdr[i];
    if (p.p_type == PT_NOTE) {
      search.id = id_among(reinterpret_cast<const char*>(object->dlpi_addr + p.p_vaddr), p.p_memsz);
    }
  }
  return ours;
}

}  // namespace

const std::string& build_id() {
  static const std::string* const id = [] {
    Search search{reinterpret_cast<uintptr_t>(&build_id), ""};
    dl_iterate_phdr(look, &search);
    return new std::string(search.id);
  }();
  return *id;
}

}  // namespace lutra
