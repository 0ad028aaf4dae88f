-- Runs a program in PyTorch: it translates statements of Lua to Python, which a process of peer.py runs, and compares
-- the observed values with those of Lutra's eager mode.
local M = {}

local words = {["true"] = "True", ["false"] = "False", ["nil"] = "None", lt = "torch", try = "attempt", ["local"] = "",
  ["not"] = "not"}

-- Translates one statement: methods, keyword tables, lists, index texts and constants. Table fields and closures are
-- not translated.
function M.statement(lua)
  local text = lua:gsub("%[(['\"])(.-)%1%]", "[%2]")  -- x["0:2, ::2"]
  text = text:gsub("%b{}", function(table)
    local inner = table:sub(2, -2)
    return inner:find("^%s*[%a_]+ = ") and inner or "[" .. inner .. "]"
  end)
  text = text:gsub(":([%a_][%w_]*)%(", ".%1(")
  text = text:gsub("'([a-z]+%d+)'", function(name) return (name:find("^u?int%d") or name:find("^b?float%d"))
    and "torch." .. name end)
  text = text:gsub("%f[%w_][%a_]+%f[^%w_]", words)
  return (text:gsub("%^", "**"):gsub("~=", "!="):gsub("^%s+", ""))
end

-- A Python process that runs programs, one at a time.
local Peer = {}
Peer.__index = Peer

function M.start(python, folder)
  local fifo = os.tmpname()
  os.remove(fifo)
  assert(os.execute("mkfifo " .. fifo) == 0)
  local pipe = assert(io.popen(("'%s' '%speer.py' >%s"):format(python, folder, fifo), "w"))
  local peer = setmetatable({pipe = pipe, out = assert(io.open(fifo, "r"))}, Peer)
  os.remove(fifo)
  return peer
end

local function value(text)
  if text == "True" or text == "False" then return text == "True" end
  if text == "nan" then return 0 / 0 end
  return tonumber(text) or text == "inf" and math.huge or text == "-inf" and -math.huge or text
end

-- Returns what PyTorch observed, in entries like world.lua's, but without texts.
function Peer:run(python_text)
  self.pipe:write(python_text, "\n%end\n")
  self.pipe:flush()
  local seen = {}
  for line in self.out:lines() do
    if line == "%end" then return seen end
    local fields = {}
    for field in (line .. "\t"):gmatch("([^\t]*)\t") do fields[#fields + 1] = field end
    local entry = {kind = fields[1], name = fields[2]}
    if entry.kind == "error" then
      entry.error, entry.text = true, fields[3]
    elseif fields[3] == "tensor" then
      entry.dtype, entry.shape, entry.requires_grad, entry.values = fields[4], fields[5], fields[6] == "True", {}
      for text in fields[7]:gmatch("%S+") do entry.values[#entry.values + 1] = value(text) end
      entry.text = ("%s {%s}%s: %s"):format(entry.dtype, entry.shape, entry.requires_grad and " grad" or "",
        fields[7]:sub(1, 600))
    else
      entry.value, entry.text = value(fields[4]), fields[4]
    end
    seen[#seen + 1] = entry
  end
  error("the process of Python ended")
end

local tolerances = {float64 = 1e-10, float32 = 2e-4, float16 = 2e-2, bfloat16 = 1e-1}

-- Returns whether two numbers differ by more than `tolerance`: a part of the larger of the tensor's largest element and
-- a hundredth of the program's.
local function apart(want, got, tolerance)
  if type(want) ~= "number" or type(got) ~= "number" then return want ~= got end
  if want ~= want or got ~= got then return (want ~= want) ~= (got ~= got) end
  return want ~= got and not (math.abs(want - got) <= tolerance)
end

local function largest(entry)
  local most = 0
  for _, v in ipairs(entry.values or {entry.value}) do
    if type(v) == "number" and math.abs(v) < math.huge then most = math.max(most, math.abs(v)) end
  end
  return most
end

local function differ(a, b, scale)
  if a.name ~= b.name then return true end
  if a.error or b.error then return not (a.error and b.error) end
  if not a.values ~= not b.values then return true end
  if not a.values then
    if type(a.value) == "number" then return apart(b.value, a.value, 1e-9 * scale) end
    return a.value ~= nil and tostring(a.value) ~= tostring(b.value)
  end
  if a.dtype ~= b.dtype or table.concat(a.shape, ", ") ~= b.shape or a.requires_grad ~= b.requires_grad then
    return true
  end
  local tolerance = (tolerances[a.dtype] or 0) * math.max(largest(b), scale / 100)
  for i, v in ipairs(a.values) do
    local w = b.values[i]
    if type(v) == "cdata" then v = tonumber(v) end
    if apart(w, v, tolerance) then return true end
  end
  return false
end

-- Cases where PyTorch differs, so that the rest of a program is not compared: it adds gradients before a backward fails
-- and writes elements before an index fails; it frees a node that writes into a view though that saved nothing; it
-- refuses a tensor that was written though a copy was kept.
local own_ways = {{"second time", alone = true}, {"modified by an inplace operation", alone = true}, {"out of bounds"},
  {"out of range"}}

local function own_way(a, b)
  for _, way in ipairs(own_ways) do
    if b.error and b.text:find(way[1], 1, true) and (a.error or way.alone) then return true end
  end
  return false
end

-- Compares the values observed in Lutra's eager mode and in PyTorch. Returns nil, or a kind of difference and its text.
function M.compare(eager, torch)
  local scale = 0
  for i = 1, math.max(#eager, #torch) do
    local a, b = eager[i], torch[i]
    if not a or not b then return "torch", ("%s was seen in one run only: %s"):format((a or b).name, (a or b).text) end
    if own_way(a, b) then return end
    scale = math.max(scale, largest(b))
    if differ(a, b, scale) then
      local text = ("%s\n  Lutra   %s\n  PyTorch %s %s"):format(a.name, a.text, b.name, b.text)
      return a.error ~= b.error and "torch error" or "torch value", text, a.name
    end
  end
end

return M
