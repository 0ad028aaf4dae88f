-- What cpu.lua and gpu.lua share: options and cases in, a JSON line a case out. The caller's options are names with numbers:
--   local bench = dofile(folder .. "common.lua")(arg, {seconds = 1}); bench.options.seconds, bench.is_wanted(name) ...
local function median(list)
  table.sort(list)
  return list[math.floor((#list + 1) / 2)]
end

return function(arg, options)
  local M, wanted = {options = options, median = median}, {}
  local i = 1
  while arg[i] do
    local name = arg[i]:match("^%-%-(.*)$")
    if name then
      assert(options[name], "unknown option --" .. name)
      options[name], i = assert(tonumber(arg[i + 1]), arg[i] .. " NUMBER"), i + 1
    else
      wanted[#wanted + 1] = arg[i]
    end
    i = i + 1
  end

  -- A case that was named stands for all that begin with it; none stands for all.
  function M.is_wanted(name)
    for _, start in ipairs(wanted) do
      if name:sub(1, #start) == start then return true end
    end
    return #wanted == 0
  end

  -- fields: {name, number} in order; whole: integers that come first.
  function M.emit(name, fields, whole)
    local parts = {string.format('"case": "%s"', name)}
    for _, field in ipairs(whole or {}) do parts[#parts + 1] = string.format('"%s": %d', field[1], field[2]) end
    for _, field in ipairs(fields) do parts[#parts + 1] = string.format('"%s": %.5f', field[1], field[2]) end
    print("{" .. table.concat(parts, ", ") .. "}")
    io.stdout:flush()
  end
  return M
end
