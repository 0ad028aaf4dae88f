-- Named arguments. An unknown name is an error that lists the known ones. keywords.none stands for the default nil.
-- check(where, given, known): takes a trailing table of options and returns a new table with every option; `known` maps
-- names to defaults. read(where, schema, ...): takes PyTorch's arguments by position, by name in a trailing table, or
-- both, and returns them by position. schema is the list of {name, default} in order; an argument without a default is
-- required. An empty table at the end, beyond the required arguments, counts as no options: `{bias = nil}` is one.
local lt, use = ...
local errors = use "errors"
local fail = errors.fail
local has_unknown, has_names = lt._native.has_unknown, lt._native.has_names
local none = {}

local function fail_unknown(where, given, known)
  for name in pairs(given) do
    if known[name] == nil then
      fail("%s: unknown option '%s'%s", where, tostring(name), errors.known(name, known))
    end
  end
end

local function check(where, given, known)
  if given ~= nil then
    if type(given) ~= "table" then fail("%s: options are a table, not %s", where, errors.show(given)) end
    if has_unknown(given, known) then fail_unknown(where, given, known) end
  end
  local options = {}
  for name, default in pairs(known) do
    local value = nil
    if given ~= nil then value = given[name] end
    if value ~= nil then
      if type(default) == "boolean" then errors.boolean(where, name, value) end
      options[name] = value
    elseif default ~= none then
      options[name] = default
    end
  end
  return options
end

local function is_options(v, row)
  if type(v) ~= "table" or getmetatable(v) ~= nil then return false end
  return has_names(v) or next(v) == nil and (row == nil or row[2] ~= nil)
end

local function read(where, schema, ...)
  local given, count = {...}, select("#", ...)
  local named = {}
  if is_options(given[count], schema[count]) then named, count = given[count], count - 1 end
  if count > #schema then
    fail("%s: takes at most %d %s, got %d", where, #schema, #schema == 1 and "argument" or "arguments", count)
  end
  local known = {}
  for _, row in ipairs(schema) do known[row[1]] = row[2] == nil and none or row[2] end
  local options = check(where, named, known)
  for i, row in ipairs(schema) do
    local name, value = row[1], nil
    if i <= count then value = given[i] end
    if value ~= nil then
      if named[name] ~= nil then fail("%s: argument '%s' is given twice", where, name) end
      if type(row[2]) == "boolean" then errors.boolean(where, name, value) end
      options[name] = value
    end
    if options[name] == nil and row[2] == nil then fail("%s: argument '%s' is missing", where, name) end
  end
  return options
end

return {check = check, read = read, none = none}
