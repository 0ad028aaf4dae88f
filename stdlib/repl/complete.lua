-- complete(text): takes the text before the cursor. Returns the length of the word that is being written, and the list
-- of words that complete it. It reads tables raw and along __index tables, so it calls none of the user's code.
local lt, _, host = ...

local MOST = 400

-- Returns the state at the end of the text: inside a string (and where that begins), or in code with the open brackets
-- before it. Returns nil inside a long string or a comment.
local function scan(text)
  local i, n, open = 1, #text, {}
  while i <= n do
    local c = text:sub(i, i)
    local level = text:match("^%-%-%[(=*)%[", i) or text:match("^%[(=*)%[", i)
    if level then
      local _, last = text:find("]" .. level .. "]", i, true)
      if not last then return nil end -- a long string or comment
      i = last + 1
    elseif text:sub(i, i + 1) == "--" then
      local last = text:find("\n", i, true)
      if not last then return nil end
      i = last + 1
    elseif c == '"' or c == "'" then
      local at = i + 1
      while at <= n and text:sub(at, at) ~= c do at = at + (text:sub(at, at) == "\\" and 2 or 1) end
      if at > n then return {string = i + 1} end
      i = at + 1
    else
      if c:find("[%({%[]") then open[#open + 1] = i end
      if c:find("[%)}%]]") then open[#open] = nil end
      i = i + 1
    end
  end
  return {open = open}
end

-- Returns the chain of names that ends the text, as steps from a global: "a.b[1]:c" gives {"a", "b", 1, "c"}. Returns
-- nil if it contains a call or another expression.
local function chain_before(text)
  local steps, rest = {}, text
  while true do
    local before, name = rest:match("^(.-)([%a_][%w_]*)$")
    local index_before, index = rest:match("^(.-)%[%s*(%-?%d+)%s*%]$")
    local key_before, _, key = rest:match("^(.-)%[%s*([\"'])([^\"']*)%2%s*%]$")
    if name then
      -- The shortest prefix was matched, so the name is as long as possible.
      table.insert(steps, 1, name)
      local head = before:match("^(.*)[%.:]$")
      if not head or before:sub(-2) == ".." then return steps end
      rest = head
    elseif index then
      table.insert(steps, 1, tonumber(index))
      rest = index_before
    elseif key then
      table.insert(steps, 1, key)
      rest = key_before
    else
      return nil
    end
    if rest == "" then return nil end
  end
end

local names = lt._native.names()

-- Returns the table in which missing fields of a value with this metatable are looked up. A class of modules may use a
-- function for that.
local function above(meta)
  if type(meta) ~= "table" then return nil end
  return rawget(meta, "_compiled_of") or rawget(meta, "_is_module") and meta or rawget(meta, "__index")
end

-- Returns t[key] without calling the user's code.
local function get(value, key)
  if lt.is_tensor(value) then
    if names.methods[key] then return value[key] end
    if key == "grad" then return value.grad end
    return type(key) == "number" and value:dim() > 0 and key < value:size(0) and value[key] or nil
  end
  if type(value) == "string" then return string[key] end
  for _ = 1, 20 do
    if type(value) ~= "table" then return nil end
    local found = rawget(value, key)
    if found ~= nil then return found end
    found = lt._native.lazy.load(value, key)
    if found ~= nil then return found end
    value = above(debug.getmetatable(value))
  end
end

local function resolve(steps)
  local value = _G
  for _, step in ipairs(steps) do
    value = get(value, step)
    if value == nil then return nil end
  end
  return value
end

-- Calls add(name, value) for each field.
local function each_field(value, add)
  if lt.is_tensor(value) then
    for name in pairs(names.methods) do add(name, true, true) end
    for name in pairs(names.attributes) do add(name) end
    return
  end
  if type(value) == "string" then value = string end
  if value == lt.config then value = debug.getmetatable(value).names end
  for name in next, lt._native.lazy.names(value) do add(name, value ~= lt) end
  for _ = 1, 20 do
    if type(value) ~= "table" then return end
    for key, field in next, value do
      if type(key) == "string" and key:find("^[%a_][%w_]*$") then
        add(key, type(field) == "function" or type(field) == "table")
      end
    end
    value = above(debug.getmetatable(value))
  end
end

local function finish(partial, found)
  local out = {}
  for name in pairs(found) do out[#out + 1] = name end
  table.sort(out)
  for i = #out, MOST + 1, -1 do out[i] = nil end
  return #partial, out
end

local function files(text, start)
  local written = text:sub(start)
  local folder, partial = written:match("^(.*/)([^/]*)$")
  if not folder then folder, partial = "", written end
  local path = folder == "" and "./" or folder
  if path:sub(1, 2) == "~/" then path = (os.getenv("HOME") or "~") .. path:sub(2) end
  local found = {}
  for _, name in ipairs(host.list_folder(path)) do
    if name:sub(1, #partial) == partial and (partial ~= "" or name:sub(1, 1) ~= ".") then found[name] = true end
  end
  return finish(partial, found)
end

-- Returns the options of a function or class from the annotations: {bias?: boolean, ...} or a class of such fields.
local function annotated_options(callee)
  local text, names_found = lt._native.source("lutra.meta.lutra") or "", {}
  local options = nil
  if type(callee) == "table" and rawget(callee, "_name") then
    local arguments = text:match("%-%-%-@field " .. callee._name .. " fun(%b())")
    options = arguments and arguments:match("options%?: (%b{})")
    -- Without a type, options are listed behind it: stride, padding (also "same"), groups.
    local listed = arguments and not options
      and text:match("%-%-%-@field " .. callee._name .. " fun%b(): lutra%.Module ([^\n]*)") or ""
    for part in (listed:gsub("%b()", "") .. ","):gmatch("(.-),") do
      names_found[#names_found + 1] = part:match("^%s*([%a_][%w_]*)%s*$")
    end
  elseif type(callee) == "function" then
    for key, value in next, lt do
      if value == callee then
        local at = text:find("function lt." .. key .. "(", 1, true)
        local above = nil
        for line in (at and text:sub(1, at - 1):match("\n\n?([^\n].*)$") or ""):gmatch("[^\n]+") do
          -- of the comment just above
          above = line:sub(1, 3) == "---" and (line:match("^%-%-%-@param options%? (.+)$") or above) or nil
        end
        local class = above and above:match("^lutra%.%w+$")
        options = above and above:match("^%b{}")
        if class then
          local fields = text:match("%-%-%-@class " .. class .. "\n(.-)\n\n") or ""
          for name in fields:gmatch("@field ([%w_]+)") do names_found[#names_found + 1] = name end
        end
      end
    end
  end
  for name in (options or ""):gmatch("([%a_][%w_]*)%??:") do names_found[#names_found + 1] = name end
  return names_found
end

-- Values of keywords that are one of a few texts; of others, files are offered where the name speaks of one.
local VALUES = {
  dtype = lt._native.dtypes, device = {"cpu", "cuda"},
  backend = {"native", "eager", "aot_eager"}, reduction = {"none", "mean", "sum"}, rounding_mode = {"trunc", "floor"},
  approximate = {"none", "tanh"}, memory_format = {"channels_last", "contiguous_format"},
    anneal_strategy = {"cos", "linear"},
  padding = {"same", "valid"}, padding_mode = {"zeros"}, activation = {"relu", "gelu"},
    isa = {"avx512", "avx2", "arm64", "interp"},
  stress = {"capture", "break", "backward", "collect"}, indexing = {"ij", "xy"},
    nonlinearity = {"relu", "leaky_relu", "tanh", "sigmoid", "linear"},
}
local MODES = {compile = {"default", "reduce-overhead"}, patch = {"default", "reduce-overhead"},
  explain = {"default", "reduce-overhead"},
               pad = {"constant", "reflect", "replicate", "circular"}, interpolate = {"nearest", "linear", "bilinear"},
               ReduceLROnPlateau = {"min", "max"}}
local of_a_file = {path = true, root = true, file = true, folder = true, data = true}

-- Completes the value of a keyword, or the value assigned to a setting. Returns nil for anything else.
local function keyword_values(text, start)
  local before, name = text:sub(1, start - 2):match("^(.-)([%a_][%w_]*)%s*=%s*$")
  if not name or of_a_file[name] then return nil end
  local values = VALUES[name]
  if name == "mode" then
    local callee = before:match("([%a_][%w_]*)%s*%b()%s*$") or before:match("([%a_][%w_]*)%s*[%(%{][^%(]*$")
    values = MODES[callee]
  end
  local in_table = before:find "{[^{}]*$" or before:find "config%.$"
  if not in_table then return nil end
  local partial, found = text:sub(start), {}
  for _, value in ipairs(values or {}) do
    if value:sub(1, #partial) == partial then found[value] = true end
  end
  return finish(partial, found)
end

-- Adds keyword names if the text is in a table among the arguments of a call: f(x, {par or f{a = 1, par.
local function add_keywords(text, open, word_start, add)
  local brace = open[#open]
  if not brace or text:sub(brace, brace) ~= "{" then return false end
  if not text:sub(brace + 1, word_start - 1):find("^%s*$") and not text:sub(1, word_start - 1):find("[,;]%s*$") then
    return false
  end
  local call = text:sub(1, brace - 1):gsub("%s+$", "")
  local steps = chain_before(call)
  if not steps then
    local paren = open[#open - 1]
    if not paren or text:sub(paren, paren) ~= "(" then return false end
    call = text:sub(1, paren - 1):gsub("%s+$", "")
    steps = chain_before(call)
  end
  local callee = steps and resolve(steps)
  local any = false
  local described = type(callee) == "function" and lt._native.describe(callee)
  if described then
    local first = call:find ":[%a_][%w_]*$" and 2 or 1 -- of a method: its object is given
    for _, form in ipairs(described.forms) do
      for i = first, #form do any = add(form[i].name) or any end
    end
  elseif type(callee) == "table" and type(rawget(callee, "defaults")) == "table" then -- an optimiser
    for name in pairs(callee.defaults) do any = add(name) or any end
  elseif type(callee) == "table" and type(rawget(callee, "_known")) == "table" then -- a scheduler
    for name in pairs(callee._known) do any = add(name) or any end
  end
  for _, name in ipairs(callee ~= nil and annotated_options(callee) or {}) do any = add(name) or any end
  return any
end

local reserved = {"and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in", "local", "nil",
  "not", "or",
                  "repeat", "return", "then", "true", "until", "while"}

return function(text)
  local where = scan(text)
  if not where then return 0, {} end
  if where.string then
    local length, words = keyword_values(text, where.string)
    if length then return length, words end
    return files(text, where.string)
  end
  local partial = text:match("[%a_][%w_]*$") or ""
  local head = text:sub(1, #text - #partial)
  local found = {}
  local function add(name)
    local fits = name:sub(1, #partial) == partial and (partial ~= "" or name:sub(1, 1) ~= "_")
    if fits then found[name] = true end
    return fits
  end
  local owner, mark = head:match("^(.*)([%.:])$")
  if owner and head:sub(-2) ~= ".." then
    local steps = chain_before(owner)
    local value = steps and resolve(steps)
    if value == nil then return 0, {} end
    each_field(value, function(name, callable, method)
      if mark == "." or callable or method then add(name) end
    end)
    return finish(partial, found)
  end
  if add_keywords(text, where.open, #head + 1, add) then return finish(partial, found) end
  if partial == "" then return 0, {} end
  each_field(_G, add)
  for _, word in ipairs(reserved) do add(word) end
  return finish(partial, found)
end
