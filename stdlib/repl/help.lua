-- help(x): prints what x is and how to call it. Ops are described by their schemas. Functions are described by the
-- comment above their definition. For names without a schema it also prints the annotations of stdlib/meta/lutra.lua.
local lt, use = ...
local lazy = use "lazy"

local GENERAL = [[
Lutra is a tensor language in Lua: lt.tensor, lt.nn, lt.optim, lt.data, lt.compile ...

  x = lt.randn(2, 3)          a tensor; an expression prints its value, _ is the last one
  x:sum{dim = 1}              methods take arguments in order or by name
  f = lt.compile(function(x) return (x * 2):relu() end)
  lt.explain(f)(x)            graphs, breaks and guards      lt.profile(f)(x)   kernels

  help(lt.softmax)  ?sum  help(lt.nn.Linear)  help(x)  help "conv" searches  help(lt.config)
  Tab completes names, keyword names within {} and, in strings, files
  Control-C stops a running program, Control-D leaves]]

local function source_of(name)
  local module = name:match("^@lutra/(.*)%.lua$")
  if module then return lt._native.source("lutra." .. module:gsub("/init$", ""):gsub("/", ".")) end
  local file = name:sub(1, 1) == "@" and io.open(name:sub(2))
  if not file then return nil end
  local text = file:read("*a")
  file:close()
  return text
end

local function lines_of(text)
  local lines = {}
  for line in (text .. "\n"):gmatch("(.-)\n") do lines[#lines + 1] = line end
  return lines
end

-- Returns the comment that ends above a line.
local function comment_above(lines, number)
  local first = number
  while first > 1 and lines[first - 1]:find("^%s*%-%-") do first = first - 1 end
  local out = {}
  for i = first, number - 1 do
    local text = lines[i]:gsub("^%s*%-%-+ ?", "")
    if not lines[i]:find("%-%-%-%-%-%-") then out[#out + 1] = text end
  end
  return out
end

-- Returns "name: type  words" for each field of a class of options; nil if there is no such class.
local function class_fields(text, class)
  local fields = class and class:find "Options$"
    and text:match("%-%-%-@class " .. class:gsub("%.", "%%.") .. "\n(.-)\n\n")
  if not fields then return nil end
  local out = {}
  for name, rest in fields:gmatch "@field ([%w_]+)%?? ([^\n]+)" do
    local kind, words = rest:match "^(%S+)%s*(.*)$"
    out[#out + 1] = string.format("%-10s %s%s", name, words ~= "" and words or kind, words ~= "" and " ("
      .. kind:gsub("|", " | ") .. ")" or "")
  end
  return out
end

-- Returns the annotation's words about lt.name or x:name, and its call. with_types: includes arguments without words.
local function annotation(name, with_types)
  local text = lt._native.source("lutra.meta.lutra")
  if not text then return {} end
  local lines, out = lines_of(text), {}
  for i, line in ipairs(lines) do
    local at = line:find("function lt." .. name .. "(", 1, true)
      or line:find("function Tensor:" .. name .. "(", 1, true)
    if at then
      for _, each in ipairs(comment_above(lines, i)) do
        local argument, rest = each:match("^@param ([%w_?.]+) (.*)$")
        if argument then
          local kind = rest:match("^%b{}") or rest:match("^fun%b()[^%s]*") or rest:match("^%S+")
          local words = rest:sub(#kind + 1):gsub("^%s+", "")
          local fields = class_fields(text, kind:match "^lutra%.%w+$")
          if fields then
            out[#out + 1] = "  " .. argument:gsub("%?$", "") .. ":"
            for _, field in ipairs(fields) do out[#out + 1] = "    " .. field end
          elseif words ~= "" or with_types then out[#out + 1] = "  " .. argument:gsub("%?$", "") .. ": "
            .. (words ~= "" and words or kind) end
        elseif not each:find("^@") then
          out[#out + 1] = each
        end
      end
      return out, line:match("function Tensor:(.*) end") and "x:" .. line:match("function Tensor:(.*) end")
        or line:match("function (lt%..*) end")
    end
  end
  return out
end

-- Returns "lt.compile" for a function that is a field of lt or a global.
local function name_of(f)
  for key, value in next, lt do
    if value == f then return "lt." .. key end
  end
  for key, value in next, _G do
    if value == f then return key end
    if type(value) == "table" and value ~= lt and value ~= _G and package.loaded[key] == value then
      for field, each in next, value do
        if each == f then return key .. "." .. field end
      end
    end
  end
end

local function say(...) io.write(string.format(...), "\n") end

local function signature(name, form)
  local parts, keyword = {}, false
  for _, arg in ipairs(form) do
    if arg.keyword_only and not keyword then
      keyword = true
      parts[#parts + 1] = "*"
    end
    parts[#parts + 1] = arg.name .. (arg.default and "=" .. arg.default or "")
  end
  return name .. "(" .. table.concat(parts, ", ") .. ")"
end

local function help_binding(d)
  local shown = {}
  if d.about ~= "" then say("%s", d.about) end
  for _, form in ipairs(d.forms) do
    say("%s", signature((d["function"] and "lt." or "x:") .. d.name, form))
    if not d["function"] then io.write("  (x is the first argument)\n") end
    for _, arg in ipairs(form) do
      if not shown[arg.name] then
        say("  %-12s %s%s", arg.name, arg.type, arg.default and ", default " .. arg.default or "")
        shown[arg.name] = true
      end
    end
  end
  local words, call = {}, nil
  if #d.forms == 0 then
    words, call = annotation(d.name, true)
    say("%s", call or (d["function"] and "lt." or "x:") .. d.name .. "(...)")
  end
  if d.method and d["function"] then say("also a method: x:%s(...)", d.name) end
  if d.inplace then say("changes its first argument in place") end
  for _, line in ipairs(words) do say("%s", line) end
  if #d.forms > 0 then say("Arguments may be given by name in a table at the end; after a * they must be.") end
end

local function parameters_of(f)
  local names, info = {}, debug.getinfo(f, "u")
  for i = 1, 250 do
    local name = info.nparams and i <= info.nparams and debug.getlocal(f, i)
    if not name then break end
    names[#names + 1] = name
  end
  if info.isvararg then names[#names + 1] = "..." end
  return table.concat(names, ", ")
end

local function help_function(f, name)
  local described = lt._native.describe(f)
  if described then return help_binding(described) end
  local info = debug.getinfo(f, "S")
  name = name or name_of(f)
  local words, call = {}, nil
  if name and name:find("^lt%.") then words, call = annotation(name:sub(4), true) end
  if info.what == "C" then
    say("%s%s", call or name or tostring(f), call and "" or ": a function of Lua's own, written in C")
  else
    say("%s(%s)    %s:%d", name or "function", parameters_of(f), info.short_src, info.linedefined)
    local text = source_of(info.source)
    local lines = text and lines_of(text)
    for _, line in ipairs(lines and lines[info.linedefined] and comment_above(lines, info.linedefined) or {}) do
      say("%s", line)
    end
  end
  for _, line in ipairs(words) do say("%s", line) end
end

local function columns(names)
  local width = 0
  for _, name in ipairs(names) do width = math.max(width, #name + 2) end
  local each = math.max(1, math.floor(78 / math.max(width, 1)))
  for i = 1, #names, each do
    local line = {}
    for k = i, math.min(i + each - 1, #names) do line[#line + 1] = string.format("%-" .. width .. "s", names[k]) end
    say("  %s", (table.concat(line):gsub("%s+$", "")))
  end
end

local function sorted_names(t, wanted)
  local names = {}
  for key, value in next, t do
    if type(key) == "string" and key:sub(1, 1) ~= "_" and wanted(value) then names[#names + 1] = key end
  end
  table.sort(names)
  return names
end

local function is_function(v) return type(v) == "function" end

-- Returns "(in_features: integer, ...)" for a class of modules.
local function class_signature(name)
  local text = lt._native.source("lutra.meta.lutra") or ""
  return text:match("%-%-%-@field " .. name .. " fun(%b())")
end

local function help_class(class, instance)
  local init = class.init
  say("%s%s", instance and "a module of class " or "class ", class._name)
  local signature_text = class_signature(class._name)
  if signature_text and lt.nn[class._name] == class then say("  lt.nn.%s%s", class._name, signature_text) end
  if init then
    io.write("  ")
    help_function(init, class._name .. ":init")
  end
  if class.forward then
    io.write("  ")
    help_function(class.forward, class._name .. ":forward")
  end
  if instance then say("%s", tostring(instance)) end
  local names = sorted_names(class, is_function)
  say("methods:")
  columns(names)
  say("and those of nn.Module: parameters, named_parameters, state_dict, load_state_dict, to, train, eval ...")
end

local function help_tensor(t)
  say("a tensor: dtype %s, shape {%s}, device %s%s", t.dtype, table.concat(t.shape, ", "), t.device,
    t.requires_grad and ", requires_grad" or "")
  say("x:<Tab> lists its methods; help \"sum\" tells about one")
end

-- Returns the value named "softmax", "lt.nn.Linear" or "nn.Linear".
local function find(name)
  local value = _G
  for step in name:gmatch("[^%.:]+") do value = type(value) == "table" and value[step] or nil end
  if value ~= nil and value ~= _G then return value end
  value = lt
  for step in name:gmatch("[^%.:]+") do value = type(value) == "table" and value[step] or nil end
  if value ~= nil and value ~= lt then return value end
  return nil
end

-- Prints lt.config: each setting, its current value and its meaning.
local function help_config()
  say("lt.config.NAME reads what is in force, lt.config.NAME = value sets it, LUTRA_NAME does in the environment; lt.config() is a table of all")
  local abouts = debug.getmetatable(lt.config).names
  for _, key in ipairs(sorted_names(abouts, function() return true end)) do
    say("  %-16s %-12s %s", key, tostring(lt.config[key]), abouts[key])
  end
end

local function default_text(v)
  if type(v) ~= "table" then return tostring(v) end
  return #v > 0 and type(v[1]) == "number" and "{" .. table.concat(v, ", ") .. "}" or "nil"
end

-- Prints help for a scheduler of optim.lr_scheduler.
local function help_scheduler(t)
  say("%s(optimizer, %s, {...}); options and defaults:", t._name, table.concat(t._order, ", "))
  for _, key in ipairs(sorted_names(t._known, function() return true end)) do
    say("  %-18s %s", key, default_text(t._known[key]))
  end
  say("step() after each epoch or batch; get_last_lr(), state_dict(), load_state_dict(state)")
end

-- Returns the words above the annotation of a class: optim.Optimizer, autograd.Function.
local function class_words(name)
  local lines = lines_of(lt._native.source("lutra.meta.lutra") or "")
  for i, line in ipairs(lines) do
    if line == "---@class lutra." .. name then return comment_above(lines, i) end
  end
  return {}
end

-- Prints help for a class that is no module: DataLoader.
local function help_data_class(t)
  local text = lt._native.source("lutra.meta.lutra") or ""
  say("lt.data.%s%s", t._name, text:match("%-%-%-@field " .. t._name .. " fun(%b())") or "(...)")
  local words = text:match("%-%-%-@field " .. t._name .. " fun%b(): %S+ ([^\n]+)")
  if words then say("%s", words) end
  say("methods:")
  columns(sorted_names(t, is_function))
end

local function help_table(t, name)
  local meta = debug.getmetatable(t)
  if t == lt.config then return help_config() end
  if type(rawget(t, "_known")) == "table" then return help_scheduler(t) end
  if rawget(t, "_name") and rawget(lt.data, t._name) == t then return help_data_class(t) end
  if rawget(t, "_is_module") then return help_class(t) end
  if type(meta) == "table" and rawget(meta, "_is_module") then return help_class(meta, t) end
  if type(rawget(t, "defaults")) == "table" and rawget(t, "name") then
    say("optimiser %s(params, {...}); options and defaults:", t.name)
    for _, key in ipairs(sorted_names(t.defaults, function() return true end)) do
      say("  %-14s %s", key, default_text(t.defaults[key]))
    end
    return
  end
  local class = rawget(t, "_name") or rawget(t, "name")
  for _, line in ipairs(type(class) == "string" and class_words(class) or {}) do say("%s", line) end
  say("%s", name or "a table; its fields:")
  columns(sorted_names(lazy.all(t), function() return true end))
  if t == lt then
    say("dtypes and devices are strings; every op is a method of tensors, too")
  end
end

-- Returns all public names, with their paths.
local function all_names()
  local out = {}
  local function fields(t, prefix)
    for key in next, lazy.all(t) do
      if type(key) == "string" and key:find "^%a" then out[#out + 1] = prefix .. key end
    end
  end
  fields(lt, "lt.")
  for key in next, lazy.names(lt) do
    if type(lt[key]) == "table" then fields(lt[key], "lt." .. key .. ".") end
  end
  fields(lt.optim.lr_scheduler, "lt.optim.lr_scheduler.")
  fields(lt.nn.functional, "lt.nn.functional.")
  for key in next, lt._native.names().methods do
    if rawget(lt, key) == nil then out[#out + 1] = "x:" .. key end
  end
  table.sort(out)
  return out
end

local function without_repeats(list)
  local out = {}
  for i, item in ipairs(list) do
    if item ~= list[i - 1] then out[#out + 1] = item end
  end
  return out
end

-- Returns the number of letters to change between two words; a large number if there are more than three.
local function distance(a, b)
  if math.abs(#a - #b) > 3 then return 9 end
  local row = {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local diagonal = row[0]
    row[0] = i
    for j = 1, #b do
      local above = row[j]
      row[j] = math.min(above + 1, row[j - 1] + 1, diagonal + (a:byte(i) == b:byte(j) and 0 or 1))
      diagonal = above
    end
  end
  return row[#b]
end

-- Finds names that contain the word, else names with a similar spelling.
local function search(word)
  local found, near, last = {}, {}, word:match "[%w_]+$" or word
  local lower = last:lower()
  for _, name in ipairs(all_names()) do
    local own = name:match "[%w_]+$":lower()
    if own:find(lower, 1, true) then found[#found + 1] = name end
    if #lower > 2 and distance(own, lower) <= (#lower > 5 and 2 or 1) then near[#near + 1] = name end
  end
  if #found == 0 and #near == 0 then return say("nothing is called '%s' here; help() tells how to begin", word) end
  say(#found > 0 and "nothing is called '%s' alone; with it in the name:"
    or "nothing is called '%s' here; did you mean:", word)
  columns(without_repeats(#found > 0 and found or near))
end

local function help(...)
  if select("#", ...) == 0 then return say("%s", GENERAL) end
  local x = ...
  if type(x) == "string" then
    local described = lt._native.describe(x)
    local value = find(x)
    if value == nil and described then return help_binding(described) end
    if value == nil then return search(x) end
    if type(value) == "function" then return help_function(value) end
    x = value
  end
  if type(x) == "function" then return help_function(x) end
  if type(x) == "table" then return help_table(x) end
  if lt.is_tensor(x) then return help_tensor(x) end
  if x == nil then return say("nil: nothing has this name") end
  say("a %s: %s", type(x), tostring(x))
end

-- `help` alone prints the same as help().
return setmetatable({}, {__call = function(_, ...) help(...) end, __tostring = function() return GENERAL end})
