-- lutra explain [--json] script.lua [args]: runs the script, then reports on each function that it compiled: frames,
-- graphs, graph breaks, guards, recompiles, and which kernels took the time. The report for people goes to standard
-- error, in 80 columns. With --json, one document goes to standard output (its fields: vm/repl/README.md), and what the
-- script prints goes to standard error.
local lt, use = ...
local ffi = require "ffi"
local reports, fold = use "reports", use("folding").lines
local count = reports.count

local WIDTH = 80

local function place(f)
  if type(f) ~= "function" then return "a module" end
  local info = debug.getinfo(f, "S")
  return string.format("function at %s:%d", info.short_src, info.linedefined)
end

-- Returns the script's part of the stack.
local function traceback(e)
  local text = debug.traceback(tostring(e), 2)
  return text:match("^(.*)\n\t%[C%]: in function 'xpcall'\n") or text
end

-- Runs chunk(...) and remembers the functions that it passes to lt.compile and lt.patch. describe(item) describes a
-- patched one before lt.unpatch. At the end it calls done(compiled, ok, message), also when the script calls os.exit.
local function run(chunk, describe, done, ...)
  local compiled = {}
  local compile, patch, unpatch, exit = lt.compile, lt.patch, lt.unpatch, os.exit
  local function remember(original)
    return function(f, options)
      local where, g = place(f), original(f, options)
      compiled[#compiled + 1] = {f = g, place = where}
      return g
    end
  end
  function lt.unpatch(f)
    for _, item in ipairs(compiled) do
      if item.f == f and not item.described then item.described = describe(item) end
    end
    return unpatch(f)
  end
  local function restore() lt.compile, lt.patch, lt.unpatch, os.exit = compile, patch, unpatch, exit end
  os.exit = function(...)
    restore()
    done(compiled, true)
    exit(...)
  end
  lt.compile, lt.patch = remember(compile), remember(patch)
  local ok, message = xpcall(chunk, traceback, ...)
  restore()
  done(compiled, ok, message)
  if not ok then error(message, 0) end
end

-- The facts, as plain tables ------------------------------------------------------------------------------------------

-- A list that stays a list in JSON if it is empty.
local function new_list() return setmetatable({}, {__jsontype = "array"}) end

local function plain_list(list, fields)
  local out = new_list()
  for i, item in ipairs(list) do
    out[i] = {}
    for _, name in ipairs(fields) do out[i][name] = item[name] end
  end
  return out
end

local function describe(item)
  local ok, r = pcall(lt._report, item.f)
  if not ok then return {place = item.place, ran = false, closures = 1} end
  local unit = r._unit
  if r.graph_count == 0 and r.graph_break_count == 0 and #lt.guards(item.f) == 0 then
    return {place = item.place, ran = false, closures = 1, unit = unit}
  end
  local out = {place = item.place, name = r.name, ran = true, graphs = new_list(), op_count = r.op_count, closures = 1,
    unit = unit}
  for i, graph in ipairs(r.graphs) do
    out.graphs[i] = {ops = r.ops_per_graph[i], kernels = r.kernels_per_graph[i], compile_ms = r.compile_times[i],
      compile_stages = r.compile_stages[i], text = tostring(graph)}
  end
  out.breaks = plain_list(r.break_reasons,
    {"id", "reason", "kind", "file", "line", "source", "hint", "chain", "eager", "anchor"})
  out.entries = new_list()
  for i, guards in ipairs(lt.guards(item.f)) do
    out.entries[i] = {guards = plain_list(guards, {"kind", "source", "expected", "file", "line"}), hits = guards[1]
      and guards[1].hits or 0}
  end
  out.recompiles = plain_list(lt.recompiles(item.f), {"kind", "source", "old", "new", "file", "line", "hint"})
  return out
end

local function gather(path, compiled, ok, message, total_ms, rows, compile_ms, compiled_kernels)
  local doc = {version = 1, script = path, ok = ok, functions = new_list(), total_ms = total_ms}
  if not ok then doc.error = tostring(message) end
  local by_unit = {} -- closures of one function share their entries
  for _, item in ipairs(compiled) do
    local described = item.described or describe(item)
    local unit = described.unit
    described.unit = nil
    if unit and by_unit[unit] then
      by_unit[unit].closures = by_unit[unit].closures + 1
    else
      doc.functions[#doc.functions + 1] = described
      if unit then by_unit[unit] = described end
    end
  end
  doc.counters = lt.counters()
  doc.backwards = new_list()
  for i, b in ipairs(lt._backwards()) do doc.backwards[i] = b end
  doc.profile = lt.profile and lt._native.profile_report(rows, total_ms, compile_ms, compiled_kernels)
  doc.kernels = new_list()
  for i, row in ipairs(doc.profile.kernels) do
    doc.kernels[i] = {name = row.name, op = row.op, calls = row.calls, ms = row.ms, bytes = row.bytes,
      flops = row.flops, gbps = row.gbps,
                      gflops = row.gflops, ratio_to_limit = row.ratio_to_limit, file = row.file, line = row.line}
  end
  return doc
end

-- For people ----------------------------------------------------------------------------------------------------------

local function out(indent, ...)
  local text, rest = string.format(...), nil
  local pad = string.rep(" ", indent)
  while #pad + #text > WIDTH do
    local at = text:sub(1, WIDTH - #pad + 1):match("^.*() ")
    if not at or at == 1 then break end
    text, rest = text:sub(1, at - 1), text:sub(at + 1)
    io.stderr:write(pad, text, "\n")
    pad, text = string.rep(" ", indent + 4), rest
  end
  io.stderr:write(pad, text, "\n")
end

local function print_graphs(f)
  for i, graph in ipairs(f.graphs) do
    local seen, names = {}, {}
    for _, op in ipairs(graph.ops) do
      if not seen[op] then names[#names + 1] = op end
      seen[op] = (seen[op] or 0) + 1
    end
    for k, op in ipairs(names) do names[k] = seen[op] > 1 and op .. " x" .. seen[op] or op end
    out(2, "graph %d: %s, %s, compiled in %s", i, count(#graph.ops, "op"), count(graph.kernels, "kernel"),
      reports.times {graph.compile_stages})
    if #names > 0 then out(4, "%s", table.concat(names, ", ")) end
  end
end

local function print_breaks(f)
  local times = {}
  local function key(b) return b.reason .. b.file .. b.line end
  for _, b in ipairs(f.breaks) do times[key(b)] = (times[key(b)] or 0) + 1 end
  for _, b in ipairs(f.breaks) do
    local n = times[key(b)]
    if n then
      out(2, "break at %s:%d: %s%s", b.file, b.line, b.reason, n > 1 and string.format(" (in %d graphs)", n) or "")
      for _, line in ipairs {b.source, b.chain, b.eager, b.hint, "see " .. b.anchor} do
        if line ~= "" then out(6, "%s", line) end
      end
      times[key(b)] = nil
    end
  end
end

local function print_function(f)
  local where = f.place .. (f.closures > 1 and string.format(" (%d closures)", f.closures) or "")
  if not f.ran then return out(0, "%s: compiled, but not called\n", where) end
  out(0, "%s: %s, %s, %s", where, count(#f.graphs, "graph"), count(#f.breaks, "graph break"),
    count(#f.recompiles, "recompile"))
  print_graphs(f)
  print_breaks(f)
  for i, entry in ipairs(f.entries) do
    if #entry.guards > 0 then
      out(2, "entry %d, %s, runs where", i, count(entry.hits, "hit"))
      for _, line in ipairs(fold(entry.guards)) do out(2, "%s", line) end
    end
  end
  for _, r in ipairs(f.recompiles) do
    out(2, "recompiled at %s:%d: %s%s%s was %s, is %s", r.file, r.line, r.kind, r.source ~= "" and " of " or "",
      r.source, r.old, r.new)
    if r.hint ~= "" then out(6, "%s", r.hint) end
  end
  out(0, "")
end

local function sorted(map)
  local keys = {}
  for key in pairs(map) do keys[#keys + 1] = key end
  table.sort(keys)
  return keys
end

local function print_totals(c)
  out(0, "%d of %s captured, %s, %s", c.frames.ok, count(c.frames.total, "frame"),
    count(c.stats.unique_graphs, "graph"),
    count(c.kernels.compiled or 0, "kernel"))
  for _, reason in ipairs(sorted(c.graph_break)) do out(0, "graph break: %s (%d)", reason, c.graph_break[reason]) end
  for _, reason in ipairs(sorted(c.recompiles)) do out(0, "recompile: %s (%d)", reason, c.recompiles[reason]) end
  local eager = c.compiled_autograd.eager
  for _, reason in ipairs(sorted(eager)) do out(0, "eager part of a backward: %s (%d)", reason, eager[reason]) end
end

local MOST_KERNELS = 20

local function print_people(doc)
  io.stdout:flush() -- what the script has printed comes before the report, also in one pipe
  io.stderr:write("\n", ("-- " .. doc.script .. " " .. string.rep("-", WIDTH)):sub(1, WIDTH), "\n")
  for _, f in ipairs(doc.functions) do print_function(f) end
  if #doc.functions == 0 then out(0, "nothing was compiled: give a function to lt.compile or lt.patch\n") end
  for _, b in ipairs(doc.backwards) do out(0, "%s", reports.backward(b)) end
  print_totals(doc.counters)
  if #doc.profile.kernels == 0 then return end
  local left = #doc.profile.kernels - MOST_KERNELS
  for i = #doc.profile.kernels, MOST_KERNELS + 1, -1 do doc.profile.kernels[i] = nil end
  io.stderr:write("\n", tostring(doc.profile), "\n")
  if left > 0 then out(0, "and %s more that took less", count(left, "kernel")) end
end

-- ------------------------------------------------------------------------------------------------------------------

ffi.cdef [[int lutra_explain_dup(int) __asm__("dup"); int lutra_explain_dup2(int, int) __asm__("dup2");]]

return function(as_json, path, ...)
  local chunk, problem = loadfile(path ~= "-" and path or nil)
  if not chunk then error(problem, 0) end
  local before = rawget(_G, "arg") or {}
  _G.arg = {[-1] = before[-1], [0] = path, ...}
  local stdout = as_json and ffi.C.lutra_explain_dup(1)
  if as_json then ffi.C.lutra_explain_dup2(2, 1) end
  use "profile" -- before the clock runs
  lt._native.profile_start()
  local start = lt.perf_counter()
  run(chunk, describe, function(compiled, ok, message)
    local total_ms = (lt.perf_counter() - start) * 1e3
    local doc = gather(path, compiled, ok, message, total_ms, lt._native.profile_stop())
    if not as_json then return print_people(doc) end
    io.stdout:flush()
    ffi.C.lutra_explain_dup2(stdout, 1)
    doc.profile = nil
    io.stdout:write(lt._native.json(doc), "\n")
    io.stdout:flush()
  end, ...)
end
