-- Annotations (LuaLS) of every name whose arguments a schema describes, as texts by file name. lutra.lua, written by
-- hand, has the others. A form has the arguments in order and a table of the keyword-only ones. A second overload takes
-- all by name.
local lt, use = ...
local names, examples = use "meta.names", use "meta.examples"

local TYPES = {Tensor = "lutra.Tensor", ["list of Tensors"] = "lutra.Tensor[]", ["Tensor or number"] = "lutra.Operand",
  integers = "lutra.Dims",
               dtype = "lutra.DType", device = "string"}
local KEYWORDS = {["end"] = true, ["repeat"] = true}

local function type_of(arg)
  local kind = arg.type:gsub(" or nil$", "")
  return TYPES[kind] or kind
end

local function optional(arg) return arg.default ~= nil or arg.type:find " or nil$" ~= nil end

local function parameter(arg) return KEYWORDS[arg.name] and arg.name .. "_" or arg.name end

local function table_of(args)
  local fields = {}
  for i, arg in ipairs(args) do
    local name = KEYWORDS[arg.name] and '["' .. arg.name .. '"]' or arg.name
    fields[i] = name .. (optional(arg) and "?" or "") .. ": " .. type_of(arg)
  end
  return "{" .. table.concat(fields, ", ") .. "}"
end

-- Returns whether some argument is required.
local function needed(args)
  for _, arg in ipairs(args) do
    if not optional(arg) then return true end
  end
  return false
end

local function returns_of(form, d)
  if form.list then return {"lutra.Tensor[]"} end
  if form.results then
    local out = {}
    for i = 1, form.results do out[i] = "lutra.Tensor" end
    return out
  end
  local ok, results = examples.run(examples.example(d)) -- not an op: the kinds of the example's results
  local out = {}
  for i = 1, ok and results.n or 0 do
    out[i] = lt.is_tensor(results[i]) and "lutra.Tensor" or results[i] == nil and "nil" or type(results[i])
  end
  return out
end

-- Splits the arguments of a form behind `self` into positional ones and keyword-only ones.
local function split(form, method)
  local ordered, named = {}, {}
  for i = method and 2 or 1, #form do
    local to = form[i].keyword_only and named or ordered
    to[#to + 1] = form[i]
  end
  return ordered, named
end

local function fun(parts, returns)
  return "fun(" .. table.concat(parts, ", ") .. ")" .. (#returns > 0 and ": " .. table.concat(returns, ", ") or "")
end

-- Returns the function type of a form.
local function overload(form, method, returns)
  local ordered, named = split(form, method)
  local parts = {method and "self: lutra.Tensor" or nil}
  for _, arg in ipairs(ordered) do
    parts[#parts + 1] = parameter(arg) .. (optional(arg) and "?" or "") .. ": " .. type_of(arg)
  end
  if #named > 0 then parts[#parts + 1] = "options" .. (needed(named) and "" or "?") .. ": " .. table_of(named) end
  return fun(parts, returns)
end

-- Adds the overloads that take all arguments by name, or sizes one by one if there is nothing else.
local function other_calls(out, form, method, returns)
  local ordered, named = split(form, method)
  local all, prefix = {}, method and "self: lutra.Tensor, " or ""
  for _, list in ipairs {ordered, named} do
    for _, arg in ipairs(list) do all[#all + 1] = arg end
  end
  if #ordered == 0 then return end
  out[#out + 1] = "---@overload " .. fun({prefix .. "options: " .. table_of(all)}, returns)
  if #ordered == 1 and ordered[1].type:find "^integers" then
    out[#out + 1] = "---@overload " .. fun({prefix .. "...: integer"}, returns)
  end
end

-- Returns the annotation of d as a method or as a function, of lt or under another name.
local function annotate(d, method, name)
  local out, form = {"---" .. d.about}, d.forms[1]
  local ordered, named = split(form, method)
  local parts = {}
  for _, arg in ipairs(ordered) do
    parts[#parts + 1] = parameter(arg)
    local default = arg.default and arg.default ~= "nil" and " default " .. arg.default or ""
    out[#out + 1] = string.format("---@param %s%s %s%s", parameter(arg), optional(arg) and "?" or "", type_of(arg),
      default)
  end
  if #named > 0 then
    parts[#parts + 1] = "options"
    out[#out + 1] = "---@param options" .. (needed(named) and "" or "?") .. " " .. table_of(named)
  end
  local returns = returns_of(form, d)
  for _, kind in ipairs(returns) do out[#out + 1] = "---@return " .. kind end
  for i, other in ipairs(d.forms) do
    local gives = i == 1 and returns or returns_of(other, d)
    if i > 1 then out[#out + 1] = "---@overload " .. overload(other, method, gives) end
    other_calls(out, other, method, gives)
  end
  local list = table.concat(parts, ", ")
  if KEYWORDS[d.name] then
    if method then list = "self" .. (list ~= "" and ", " .. list or "") end
    out[#out + 1] = string.format('%s["%s"] = function(%s) end', method and "Tensor" or "lt", d.name, list)
  else
    name = name or (method and "Tensor:" or "lt.") .. d.name
    out[#out + 1] = string.format("function %s(%s) end", name, list)
  end
  return table.concat(out, "\n")
end

local function ops()
  local out = {"---@meta",
    "-- Made by lutra docs: every op, method and function that has a schema; lutra.lua has the rest.", "",
               "---@class lutra.Tensor", "local Tensor = {}", "---@class lutra", "local lt = {}",
               "---@class lutra.special", "lt.special = {}", ""}
  for _, d in ipairs(names.list) do
    if d.method and #d.forms > 0 then out[#out + 1] = annotate(d, true) end
    local own = d["function"] and not d.name:find("nn.functional.", 1, true)
    if own and #d.forms > 0 then out[#out + 1] = annotate(d, false) end
  end
  return table.concat(out, "\n") .. "\n"
end

-- Returns the annotations of namespaces whose fields are functions of lt.
local function spaces()
  local out = {"---@meta", "-- Made by lutra docs: namespaces that hold functions of lt.", "", "---@type lutra",
    "local lt", ""}
  for _, row in ipairs {{"functional", "lt%.nn%.functional%.(.*)"}, {"linalg", "lt%.linalg%.(.*)"}} do
    out[#out + 1] = "---@class lutra." .. row[1] .. "\nlocal " .. row[1] .. " = {}"
    for _, d in ipairs(names.list) do
      local own = ("lt." .. d.name):match("^" .. row[2])
      if own then out[#out + 1] = annotate(d, false, row[1] .. "." .. own) end
      for _, place in ipairs(d.places) do
        local key = place:match("^" .. row[2])
        if key then out[#out + 1] = string.format("%s.%s = lt.%s", row[1], key, d.name) end
      end
    end
  end
  return table.concat(out, "\n") .. "\n"
end

-- Returns texts by file name.
local function files() return {["ops.lua"] = ops(), ["spaces.lua"] = spaces(),
  ["lutra.lua"] = lt._native.source "lutra.meta.lutra"} end

return {files = files}
