-- The environment of programs in a sandbox: make(read, parse, patterns) -> globals, methods of strings, module.
-- read(name) returns the text of one of the host's files, or nil. parse(text) returns the content of a .safetensors
-- file. patterns are find, match, gmatch and gsub that can be stopped.
local lt, use = ...
local lazy = use "lazy"
local fail = use("errors").fail

local GLOBALS = "assert error ipairs next pairs pcall print rawequal rawget rawset select setmetatable tonumber "
  .. "tostring type unpack xpcall _VERSION"
local LIBRARIES = {
  string = "byte char format len lower rep reverse sub upper",
  table = "concat foreach foreachi getn insert maxn move remove sort",
  math = "abs acos asin atan atan2 ceil cos cosh deg exp floor fmod frexp huge ldexp log log10 max min modf pi pow rad "
    .. "random randomseed sin sinh sqrt tan tanh",
  coroutine = "create isyieldable running status yield",
  bit = "arshift band bnot bor bswap bxor lshift rol ror rshift tobit tohex",
}
-- Not in a sandbox: files, addresses, and settings of the whole process.
local NOT_OF_LT = {
  from_blob = true, from_ffi = true, from_dlpack = true, save = true, load = true, set_num_threads = true,
  set_float32_matmul_precision = true, backends = true, config = true, data = true}
local NOT_OF_DATA = {read_idx = true, FashionMNIST = true}
local SETTINGS = {recompile_limit = true, capture_budget_ms = true, activation_memory_budget = true,
  compiled_autograd = true, profit = true}

local MOST_RESUMES = 150

local function pick(from, names)
  local to = {}
  for name in names:gmatch "%S+" do to[name] = from[name] end
  return to
end

local function is_open(name)
  return type(name) ~= "string" or not (NOT_OF_LT[name] or (name:find "^_" and name ~= "__version__"))
end

local function settings()
  local config = lt.config
  return setmetatable({}, {
    __index = function(_, name)
      if name == "cache_dir" then fail "config: cache_dir is the host's to know: this is a sandbox" end
      local value = config[name]
      if type(value) ~= "table" and type(value) ~= "userdata" then return value end -- tables of switches
    end,
    __newindex = function(_, name, value)
      if not SETTINGS[name] then fail("config: %s is the host's to set: this is a sandbox", tostring(name)) end
      config[name] = value
    end,
    __metatable = false,
  })
end

local function module(read, parse)
  local files, fields, open = {}, {}, {}
  for name, file in next, lazy.places[lt][1] do
    if is_open(name) then files[name] = file end
  end
  for file, names in next, lazy.places[lt][2] do
    fields[file] = names:gsub("%S+", function(name) return not is_open(name) and "" or nil end)
  end
  for name, value in next, lt do
    if is_open(name) then open[name] = value end
  end
  setmetatable(open, {__index = getmetatable(lt).__index}) -- errors for names that look like dtypes
  lazy.fill(open, files, fields)
  open.config = settings()
  open.data = {}
  for name, value in next, lt.data do
    if not NOT_OF_DATA[name] then open.data[name] = value end
  end
  function open.load(name)
    if type(name) ~= "string" then fail("load: argument 'path' must be a string, got %s", type(name)) end
    local text = read(name)
    if not text then fail("load: the host gives no file '%s'", name) end
    return parse(text)
  end
  return open
end

-- Loads only text, and reads only tables' metatables.
local function loaders(globals)
  local load, getmetatable = load, getmetatable
  function globals.load(chunk, name, _, env)
    if env ~= nil and type(env) ~= "table" then fail("load: argument 'env' must be a table, got %s", type(env)) end
    return load(chunk, name, "t", env or globals)
  end
  function globals.loadstring(text, name)
    if type(text) ~= "string" then fail("loadstring: argument 'text' must be a string, got %s", type(text)) end
    return load(text, name or text, "t", globals)
  end
  function globals.getmetatable(value)
    if type(value) == "table" then return getmetatable(value) end
  end
end

local function requirer(globals, open, read)
  local loaded, load = {lutra = open}, load
  return function(name)
    if type(name) ~= "string" then fail("require: argument 'name' must be a string, got %s", type(name)) end
    if loaded[name] ~= nil then return loaded[name] end
    local part = name:match "^lutra%.(.+)$"
    if part and is_open(part) and open[part] ~= nil then return open[part] end
    local path = name:gsub("%.", "/") .. ".lua"
    local text = read(path)
    if not text then fail("require: the host gives no file '%s'", path) end
    local chunk, problem = load(text, "@" .. path, "t", globals)
    if not chunk then error(problem, 0) end
    loaded[name] = true
    local value = chunk(name)
    if value ~= nil then loaded[name] = value end
    return loaded[name]
  end
end

-- format without %p, which shows an object's address. It goes byte by byte, because a pattern would retry from each
-- digit.
local format, find, gsub, byte, sub = string.format, string.find, string.gsub, string.byte, string.sub
local pcall, error = pcall, error
local BETWEEN = {} -- bytes between % and the letter
for c in ("-+ #.0123456789"):gmatch "." do BETWEEN[byte(c)] = true end
local PERCENT, POINTER = byte "%", byte "p"

local function shows_address(text)
  local at = find(text, "%", 1, true)
  while at do
    at = at + 1
    local c = byte(text, at)
    while BETWEEN[c] do
      at = at + 1
      c = byte(text, at)
    end
    if c == POINTER then return true end
    at = find(text, "%", c == PERCENT and at + 1 or at, true)
  end
end

-- format's own errors must name the place where format was called, not this line.
local function formatted(ok, result)
  if ok then return result end
  local begin = type(result) == "string" and sub(result, 1, 14)
  if begin == "invalid option" then fail(result) end
  if begin == "bad argument #" then fail((gsub(result, "'%?'", "'format'", 1))) end
  error(result, 0)
end

local function format_values(...)
  local text = ...
  if type(text) == "string" and shows_address(text) then fail "format: %p shows an address: this is a sandbox" end
  return formatted(pcall(format, ...))
end

local function methods(patterns)
  local all = pick(string, LIBRARIES.string)
  all.format = format_values
  for name, f in pairs(patterns) do all[name] = f end
  return all
end

-- A resume within a resume uses the processor's stack, which Lua's own coroutines don't limit. Each coroutine stores
-- the depth at which it was resumed. So if one fails, or a limit ends it, nothing has to be counted back.
local function coroutines()
  local all = pick(coroutine, LIBRARIES.coroutine)
  local resume, create, running = coroutine.resume, coroutine.create, coroutine.running
  local depths = setmetatable({}, {__mode = "k"})
  local function resume_one(co, ...)
    if type(co) ~= "thread" then fail "bad argument #1 to 'resume' (coroutine expected)" end
    local depth = (depths[running() or 0] or 0) + 1
    if depth > MOST_RESUMES then return false, "too many coroutines within one another" end
    depths[co] = depth
    return resume(co, ...)
  end
  all.resume = resume_one
  local function results(ok, ...)
    if not ok then error((...), 0) end
    return ...
  end
  function all.wrap(f)
    if type(f) ~= "function" then fail("bad argument #1 to 'wrap' (function expected, got %s)", type(f)) end
    local co = create(f)
    return function(...) return results(resume_one(co, ...)) end
  end
  return all
end

return function(read, parse, patterns)
  if lt.config.cache == "on" then lt.config.cache = "read" end
  local globals = pick(_G, GLOBALS)
  for name, functions in pairs(LIBRARIES) do globals[name] = pick(_G[name], functions) end
  local collect = collectgarbage
  function globals.collectgarbage(what)
    what = what or "collect"
    if what ~= "collect" and what ~= "count" and what ~= "step" then
      fail("collectgarbage: '%s' is not available in a sandbox", tostring(what))
    end
    return collect(what)
  end
  globals.string, globals.coroutine = methods(patterns), coroutines()
  globals._G = globals
  local open = module(read, parse)
  loaders(globals)
  globals.require = requirer(globals, open, read)
  return globals, methods(patterns), open
end
