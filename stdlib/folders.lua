-- make(path, mode) makes the folders of a path. Existing ones stay unchanged.
local ffi = require "ffi"
ffi.cdef [[int lutra_mkdir(const char*, unsigned) __asm__("mkdir");]]

local function make(path, mode)
  for i = 2, #path + 1 do
    if i > #path or path:sub(i, i) == "/" then ffi.C.lutra_mkdir(path:sub(1, i - 1), mode) end
  end
end

return {make = make}
