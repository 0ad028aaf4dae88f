-- lutra --version: prints the version of this executable, and what it found on this machine.
local lt = ...
local native = lt._native

local function gpus()
  local why = lt.cuda.missing()
  if why.driver then return "none: " .. why.driver end
  local names = {}
  for i = 0, lt.cuda.device_count() - 1 do
    local properties = lt.cuda.get_device_properties(i)
    names[#names + 1] = string.format("%s (sm_%d%d, %.0f GB)", properties.name, properties.major, properties.minor,
      properties.total_memory / 1e9)
  end
  return table.concat(names, ", ")
end

return function()
  local tiles = native.has_tiles() and " with amx" or ""
  print(string.format("  CPU    %s%s, %d threads", lt.config.isa, tiles, lt.get_num_threads()))
  print("  GPU    " .. gpus())
  print("  NVRTC  " .. (lt.cuda.missing().nvrtc and "none: " .. lt.cuda.missing().nvrtc or "found"))
  print("  cache  " .. (lt.config.cache == "off" and "off" or lt.config.cache_dir or "no folder: HOME is not set"))
end
