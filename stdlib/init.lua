-- The first chunk of the standard library. It gets the native module table and adds lt.nn, lt.optim and the other names
-- listed below. Each is loaded at its first use. A chunk of stdlib/ is called with (lt, use). use "nn.module" returns
-- the value of stdlib/nn/module.lua.
local lt = ...
local chunk_of = lt._native.stdlib

local loaded = {}
local function use(name)
  local module = loaded[name]
  if module == nil then
    module = chunk_of("lutra." .. name)(lt, use)
    loaded[name] = module
  end
  return module
end

local lazy = use "lazy"
lt._native.lazy, lt._native.use = lazy, use -- for traces, the REPL and the commands of the executable

-- lt.float33 would be nil, which `dtype =` takes for "not given". So a name that looks like a dtype but is none is an
-- error.
local function check_dtype(_, key)
  if type(key) ~= "string"
    or not (key:find "^b?float%d+[%w_]*$" or key:find "^u?int%d+$" or key:find "^complex%d+$") then
    return
  end
  local errors = use "errors"
  errors.fail("lt.%s: no such dtype%s", key, errors.known(key, lt._native.dtypes))
end

setmetatable(lt, {__index = check_dtype})
lazy.fill(lt, {
  nn = "nn", optim = "optim", data = "data", linalg = "linalg", cuda = "cuda", progress = "progress",
  perf_counter = "clock", Generator = "generator", profile = "profile", backends = "backends", finfo = "finfo",
  iinfo = "iinfo", help = "repl.help", autograd = "autograd", amp = "amp", deepcopy = "deepcopy",
  isinstance = "isinstance",
  cond = "control.cond", while_loop = "control.while_loop", scan = "control.scan", map = "control.map",
  associative_scan = "control.associative_scan"}, {checks = "check check_is_size", stance = "set_stance"})

if package and package.preload then
  local function load(name) return lt[name:sub(#"lutra." + 1)] end
  for key in next, lazy.names(lt) do package.preload["lutra." .. key] = load end
end
