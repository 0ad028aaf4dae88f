-- lt.isinstance(value, class): returns whether a module, optimiser or scheduler is of that class or of a subclass.
-- class may be a list of classes.
local _, use = ...
local errors = use "errors"
local module = use "nn.module"

local function parent_of(class)
  local meta = getmetatable(class)
  return meta and rawget(meta, "__index")
end

local function is_class(v) return type(v) == "table" and (rawget(v, "_name") ~= nil or rawget(v, "name") ~= nil)
  and rawget(v, "__index") ~= nil end

local function isinstance(value, class)
  if type(class) == "table" and not is_class(class) and #class > 0 then
    for i = 1, #class do
      if isinstance(value, class[i]) then return true end
    end
    return false
  end
  if not is_class(class) then errors.wrong("isinstance", "class", "a class or a list of classes", class) end
  if type(value) ~= "table" then return false end
  if module.is_module(value) then value = module.real(value) end
  local of = getmetatable(value)
  while type(of) == "table" do
    if of == class then return true end
    of = parent_of(of)
  end
  return false
end

return isinstance
