-- show(...): prints the values of an expression and keeps the first as the global _. pretty(v): formats one value,
-- limited in depth, width and number of items. Tables within themselves are marked.
local lt, _, host = ...

local WIDTH, DEPTH, ITEMS, BUDGET, STRING, LINES = 80, 4, 50, 400, 200, 60

local escapes = {["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t", ["\\"] = "\\\\", ['"'] = '\\"', ["\0"] = "\\0"}

local function quote(s)
  return '"' .. s:gsub('[%c\\"]', function(c) return escapes[c] or string.format("\\%03d", c:byte()) end) .. '"'
end

local keywords = {}
for word in ("and break do else elseif end false for function goto if in local nil not or repeat return then true until while"):gmatch("%a+") do
  keywords[word] = true
end

local function key_text(key)
  if type(key) == "string" then
    if key:find("^[%a_][%w_]*$") and not keywords[key] then return key end
    return "[" .. quote(key) .. "]"
  end
  return "[" .. tostring(key) .. "]"
end

local function function_text(f)
  local described = lt._native.describe(f)
  if described then return "function: lt." .. described.name end
  local info = debug.getinfo(f, "S")
  if info.what == "C" then return tostring(f) end
  return string.format("function: %s:%d", info.short_src, info.linedefined)
end

local function tensor_text(t)
  if not pcall(t.data_ptr, t) then return tostring(t) end -- freed
  if t:dim() <= 1 and t:numel() <= 6 and t.dtype ~= "bool" then
    local ok, text = pcall(tostring, t)
    if ok and not text:find("\n") and #text < 60 then return text end
  end
  return string.format("tensor(%s {%s}%s)", t.dtype, table.concat(t.shape, ", "), t.device ~= "cpu" and " " .. t.device
    or "")
end

local rank = {number = 1, string = 2}
local function before(a, b)
  local ra, rb = rank[type(a)] or 3, rank[type(b)] or 3
  if ra ~= rb then return ra < rb end
  if ra < 3 then return a < b end
  return tostring(a) < tostring(b)
end

local function sorted_keys(t, n)
  local keys = {}
  for key in next, t do
    if not (type(key) == "number" and key >= 1 and key <= n and key % 1 == 0) then keys[#keys + 1] = key end
  end
  table.sort(keys, before)
  return keys
end

local pretty

-- Formats the items of a table. state.budget is the number of items that may still be printed.
local function items_of(t, state, depth)
  local n, items, left = #t, {}, 0
  local function add(prefix, value)
    if #items >= ITEMS or state.budget <= 0 then
      left = left + 1
      return
    end
    state.budget = state.budget - 1
    items[#items + 1] = prefix .. pretty(value, state, depth + 1, #prefix)
  end
  for i = 1, n do
    if #items >= ITEMS then
      left = left + n - i + 1
      break
    end
    add("", rawget(t, i))
  end
  for _, key in ipairs(sorted_keys(t, n)) do add(key_text(key) .. " = ", rawget(t, key)) end
  if left > 0 then items[#items + 1] = string.format("... %d more", left) end
  return items
end

-- Puts short items on shared lines.
local function lay_out(items, indent)
  local lines, line = {}, ""
  for i, item in ipairs(items) do
    local text = item .. (i < #items and "," or "")
    local fits = #line + 1 + #text <= WIDTH - #indent - 2 and not text:find("\n") and #text <= 24
    if line ~= "" and fits and not line:find("\n") then
      line = line .. " " .. text
    else
      if line ~= "" then lines[#lines + 1] = line end
      line = text
    end
    if not fits and not (#text <= 24) then
      lines[#lines + 1] = line
      line = ""
    end
  end
  if line ~= "" then lines[#lines + 1] = line end
  return "{\n" .. indent .. "  " .. table.concat(lines, "\n" .. indent .. "  ") .. "\n" .. indent .. "}"
end

-- lt.config is a proxy without fields.
local function settings()
  local out = {}
  for name in pairs(debug.getmetatable(lt.config).names) do out[name] = lt.config[name] end
  return out
end

local function table_text(t, state, depth, used)
  local meta = debug.getmetatable(t)
  if type(meta) == "table" and rawget(meta, "__tostring") then
    if depth > 0 and not pcall(tostring, t) then return "<a table whose __tostring fails>" end
    return (tostring(t):gsub("\n+$", ""):gsub("\n", "\n" .. string.rep("  ", depth)))
  end
  if t == lt.config then t = settings() end
  if t == lt and depth == 0 then return "Lutra " .. lt.__version__ .. "; help(lt) lists what it has" end
  if state.open[t] then return "<the table itself, " .. state.open[t] .. " up>" end
  if next(t) == nil then return "{}" end
  if depth >= DEPTH then return "{...}" end
  for up in pairs(state.open) do state.open[up] = state.open[up] + 1 end
  state.open[t] = 1
  local items = items_of(t, state, depth)
  state.open[t] = nil
  for up in pairs(state.open) do state.open[up] = state.open[up] - 1 end
  local flat = "{" .. table.concat(items, ", ") .. "}"
  if #flat + used + 2 * depth <= WIDTH and not flat:find("\n") then return flat end
  return lay_out(items, string.rep("  ", depth))
end

function pretty(v, state, depth, used)
  local kind = type(v)
  if kind == "string" then
    if depth > 0 and #v > STRING then return quote(v:sub(1, STRING)) .. string.format("... (%d bytes)", #v) end
    return quote(v)
  end
  if kind == "table" then return table_text(v, state, depth, used) end
  if kind == "number" and v % 1 == 0 and math.abs(v) <= 2 ^ 53 then return string.format("%.0f", v) end -- all digits
  if kind == "function" then return function_text(v) end
  if kind == "userdata" and depth > 0 and lt.is_tensor(v) then return tensor_text(v) end
  return tostring(v)
end

-- Returns at most LINES lines of a text.
local function clipped(text)
  local lines, at = 0, 1
  for stop in text:gmatch("()\n") do
    lines = lines + 1
    if lines == LINES then at = stop end
  end
  return lines > LINES and text:sub(1, at) .. string.format("... %d more lines", lines - LINES + 1) or text
end

local function text_of(v)
  local text = pretty(v, {open = {}, budget = BUDGET}, 0, 0)
  return type(v) == "table" and not (debug.getmetatable(v) or {}).__tostring and clipped(text) or text
end

local function show(...)
  local n = select("#", ...)
  if n == 0 then return end
  local texts, separator = {}, "\t"
  for i = 1, n do
    texts[i] = text_of((select(i, ...)))
    if texts[i]:find("\n") then separator = "\n" end
  end
  host.end_line()
  if (...) ~= nil then rawset(_G, "_", (...)) end
  io.write(table.concat(texts, separator), "\n")
end

return {show = show, pretty = text_of}
