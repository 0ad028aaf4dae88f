-- lutra explain script.lua [args]: runs the script and then prints, to standard error, what became of each function it compiled: frames,
-- graphs, graph breaks, guards, recompiles.
local lt = ...

local function out(...) io.stderr:write(string.format(...), "\n") end

local function place(f)
  if type(f) ~= "function" then return "a module" end
  local info = debug.getinfo(f, "S")
  return string.format("function at %s:%d", info.short_src, info.linedefined)
end

-- Runs chunk(...) and remembers what it gives to lt.compile and lt.patch.
local function run(chunk, ...)
  local compiled = {}
  local compile, patch = lt.compile, lt.patch
  local function remember(original)
    return function(f, options)
      local where, g = place(f), original(f, options)
      compiled[#compiled + 1] = {f = g, place = where}
      return g
    end
  end
  lt.compile, lt.patch = remember(compile), remember(patch)
  local ok, message = xpcall(chunk, debug.traceback, ...)
  lt.compile, lt.patch = compile, patch
  return compiled, ok, message
end

local function report_function(item)
  out("%s", item.place)
  local ok, guards = pcall(lt.guards, item.f)
  if ok then out("%s", (tostring(guards):gsub("\n+$", ""))) end
  local _, recompiles = pcall(lt.recompiles, item.f)
  for _, r in ipairs(type(recompiles) == "table" and recompiles or {}) do
    out("recompiled: %s was %s, is %s%s", r.source or r.kind, tostring(r.old), tostring(r.new), r.hint and " (" .. r.hint .. ")" or "")
  end
  out("")
end

local function sorted(map)
  local keys = {}
  for key in pairs(map) do keys[#keys + 1] = key end
  table.sort(keys)
  return keys
end

local function report_totals()
  local c = lt.counters()
  out("%d frames captured of %d, %d graphs, %d kernels", c.frames.ok, c.frames.total, c.stats.unique_graphs, c.kernels.compiled or 0)
  for _, reason in ipairs(sorted(c.graph_break)) do out("graph break: %s (%d)", reason, c.graph_break[reason]) end
  for _, reason in ipairs(sorted(c.recompiles)) do out("recompile: %s (%d)", reason, c.recompiles[reason]) end
end

return function(path, ...)
  local chunk, problem = loadfile(path)
  if not chunk then error(problem, 0) end
  local before = rawget(_G, "arg") or {}
  _G.arg = {[-1] = before[-1], [0] = path, ...}
  local compiled, ok, message = run(chunk, ...)
  out("\n-- %s --------------------------------", path)
  for _, item in ipairs(compiled) do report_function(item) end
  if #compiled == 0 then out("nothing was compiled: give a function to lt.compile or lt.patch") end
  report_totals()
  if not ok then error(message, 0) end
end
