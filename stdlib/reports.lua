-- Reports for people from the lists of vm/capture/lab/report.cc: lt.guards, lt.recompiles, lt.explain. Each function
-- turns a table into one that prints.
local _, use = ...
local fold = use("folding").lines

local WIDTH = 80
local MISSING = 3 -- how many of the previous entry's extra guards a report names
local M = {}

-- count(1, "graph") is "1 graph"; count(2, "entry") is "2 entries".
local function count(n, word)
  if n == 1 then return "1 " .. word end
  return n .. " " .. (word:find "y$" and word:gsub("y$", "ies") or word .. "s")
end
M.count = count

-- Wraps text to lines of at most WIDTH characters. Continuation lines are indented further.
local function wrapped(text)
  local out = {}
  for line in (text:gsub("\n$", "") .. "\n"):gmatch("(.-)\n") do
    local indent = line:match("^ *") .. "    "
    while #line > WIDTH do
      local at = line:sub(1, WIDTH + 1):match("^.*() ")
      if not at or at <= #indent then break end -- a word longer than a line
      out[#out + 1] = line:sub(1, at - 1)
      line = indent .. line:sub(at + 1)
    end
    out[#out + 1] = line
  end
  return table.concat(out, "\n") .. "\n"
end
M.wrapped = wrapped

local function subject(g) return g.source ~= "" and g.kind .. " " .. g.source or g.kind end

-- Lists each guard below the line that reads its source.
local function all_lines(guards)
  local out, here = {}, nil
  for _, g in ipairs(guards) do
    local place = g.file .. ":" .. g.line
    if g.file ~= "?" and place ~= here then
      here = place
      out[#out + 1] = "  " .. place
    end
    out[#out + 1] = "    " .. subject(g) .. ": " .. g.expected
  end
  return out
end

-- Returns the guards of a list that another list lacks. by_source: those whose sources have no guard in the other list.
local function without(guards, others, by_source)
  local has, out = {}, {}
  local function name(g) return by_source and g.kind ~= "relation" and subject(g) or subject(g) .. ": "
    .. g.expected end
  for _, g in ipairs(others) do has[name(g)] = true end
  for _, g in ipairs(guards) do
    if not has[name(g)] then out[#out + 1] = g end
  end
  return out
end

-- Returns the differences from the previous entry as lines; nil if most guards differ.
local function differences(guards, before)
  local new, gone = without(guards, before), without(before, guards, true)
  if #new + #gone > #guards / 2 then return nil end
  local lines, missing = fold(new), fold(gone)
  if #missing > 0 then
    local more = #missing > MISSING and string.format(" and %d more", #missing - MISSING) or ""
    for i, line in ipairs(missing) do missing[i] = line:sub(3) end
    lines[#lines + 1] = "  without " .. table.concat(missing, "; ", 1, math.min(#missing, MISSING)) .. more
  end
  return lines
end

local function guards_text(list, infos, all)
  if #list == 0 then return "not captured yet: the first call compiles, or a graph break left nothing to compile\n" end
  local out = {}
  for i, guards in ipairs(list) do
    local info = infos[i]
    local head = string.format("entry %d at bytecode %d, %s, %s, %s", i, info.pc, count(info.ops, "op"),
      count(info.hits, "hit"),
      count(#guards, "guard"))
    local changed = not all and i > 1 and infos[i - 1].pc == info.pc and differences(guards, list[i - 1])
    if changed then head = head .. string.format(": those of entry %d%s", i - 1, #changed > 0 and " but for" or "") end
    out[#out + 1] = head
    for _, line in ipairs(all and all_lines(guards) or changed or fold(guards)) do out[#out + 1] = line end
  end
  return wrapped(table.concat(out, "\n"))
end

-- Turns the list itself into a report: the methods are in the metatable.
function M.guards(list, infos)
  local methods = {}
  -- {all = true}: shows each guard with the line that reads its source.
  function methods:text(options) return guards_text(self, infos, options ~= nil and options.all) end
  return setmetatable(list, {__index = methods, __tostring = function(self) return guards_text(self, infos, false) end})
end

local function recompile_lines(list)
  local out = {}
  for _, r in ipairs(list) do
    out[#out + 1] = string.format("%s:%d: %s%s%s was %s, is %s", r.file, r.line, r.kind, r.source ~= "" and " of "
      or "", r.source, r.old, r.new)
    if r.hint ~= "" then out[#out + 1] = "    " .. r.hint end
  end
  return out
end

function M.recompiles(list)
  return setmetatable(list, {__tostring = function(self)
    return #self == 0 and "no recompiles\n" or wrapped(table.concat(recompile_lines(self), "\n"))
  end})
end

local STAGES = {"capture", "passes", "schedule", "codegen"}

-- Returns "1.2 ms (capture 0.3, passes 0.1, schedule 0.2, codegen 0.6)" for the stages of one graph, or of several.
function M.times(list)
  local total, sums, parts = 0, {}, {}
  for _, stages in ipairs(list) do
    for _, name in ipairs(STAGES) do
      sums[name] = (sums[name] or 0) + stages[name]
      total = total + stages[name]
    end
  end
  for i, name in ipairs(STAGES) do parts[i] = string.format("%s %.2f", name, sums[name] or 0) end
  return string.format("%.2f ms (%s)", total, table.concat(parts, ", "))
end

-- Reports a backward outside of compiled functions (lt.config.compiled_autograd).
function M.backward(b)
  local calls = #b.calls > 0 and ", with the calls of " .. table.concat(b.calls, ", ") or ""
  return string.format("backward at %s: %s, %s, %s, compiled in %.2f ms%s", b.place, count(b.ops, "op"),
    count(b.kernels, "kernel"), count(b.hits, "call"), b.compile_ms, calls)
end

local function bytes(n)
  if n < 1024 then return count(n, "byte") end
  if n < 1024 ^ 2 then return string.format("%.1f KiB", n / 1024) end
  return string.format("%.1f MiB", n / 1024 ^ 2)
end

local function explanation_text(r, guards)
  local out = {r.name,
    string.format("%s, %s, %s", count(r.graph_count, "graph"), count(r.graph_break_count, "graph break"),
    count(r.op_count, "op"))}
  if r.graph_count > 0 then out[#out + 1] = M.times(r.compile_stages) end
  if r.plain_checkpoints > 0 then
    out[#out + 1] = count(r.plain_checkpoints, "call")
      .. " of lt.checkpoint made plain calls: compiled code decides itself what it saves"
  end
  if r.saved_bytes + r.recomputed_bytes > 0 then
    out[#out + 1] = string.format("for the backward: %s saved, %s recomputed", bytes(r.saved_bytes),
      bytes(r.recomputed_bytes))
  end
  for _, b in ipairs(r.break_reasons) do
    out[#out + 1] = string.format("break at %s:%d: %s", b.file, b.line, b.reason)
    for _, line in ipairs {b.source, b.chain, b.eager, b.hint, "see " .. b.anchor} do
      if line ~= "" then out[#out + 1] = "    " .. line end
    end
  end
  if r.graph_count == 0 then
    local last = r.break_reasons[#r.break_reasons]
    out[#out + 1] = "nothing was compiled: " .. (last and last.reason or "no op ran that a graph could hold")
  end
  for _, f in ipairs(r.frames) do
    local nothing = "nothing was compiled: " .. (f.reason ~= "" and f.reason or "no op ran that a graph could hold")
    out[#out + 1] = string.format("a frame of its own at %s: %s", f.name,
      f.graph_count > 0 and count(f.graph_count, "graph") or nothing)
  end
  for _, b in ipairs(r.backwards or {}) do out[#out + 1] = M.backward(b) end
  for i, graph in ipairs(r.graphs) do
    out[#out + 1] = "graph " .. i
    out[#out + 1] = (tostring(graph):gsub("\n$", ""))
    if #guards[i] > 0 then out[#out + 1] = "under guards" end
    for _, line in ipairs(fold(guards[i])) do out[#out + 1] = line end
  end
  return wrapped(table.concat(out, "\n"))
end

-- unit: the number of the compiled prototype, which closures share.
function M.explanation(r, guards, unit)
  return setmetatable(r,
    {__index = {_unit = unit}, __tostring = function(self) return explanation_text(self, guards) end})
end

return M
