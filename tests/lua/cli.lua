-- The executable, and the library inside a stock luajit: scripts, -e, standard input, errors, status.
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy
local lutra = arg[-1]
for i = -2, -20, -1 do -- the first of the negative arguments is the program
  if arg[i] then lutra = arg[i] end
end
local build = lutra:match("^(.*)/[^/]*$")

local function shell(command)
  local pipe = assert(io.popen(command .. ' 2>&1; echo "status $?"'))
  local text = pipe:read("*a")
  pipe:close()
  local output, status = text:match("^(.*)status (%d+)\n$")
  return output, tonumber(status)
end

local function write(text)
  local path = os.tmpname()
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  return path
end

local function has(text, part) truthy(text:find(part, 1, true), "no '" .. part .. "' in: " .. text .. "\n") end

test("-e runs a line, lt is a global", function()
  local out, status = shell(lutra .. [[ -e 'print((lt.ones(2, 2) + 1):sum():item())']])
  equal(out, "8\n")
  equal(status, 0)
end)

test("a script with arguments", function()
  local path = write("print(arg[1], arg[2], select('#', ...), require('lutra') == lt)")
  local out, status = shell(lutra .. " " .. path .. " a b")
  os.remove(path)
  equal(out, "a\tb\t2\ttrue\n")
  equal(status, 0)
end)

test("standard input", function()
  local out = shell([[echo 'print(1 + 1)' | ]] .. lutra)
  equal(out, "2\n")
  out = shell([[echo 'print(1 + 2)' | ]] .. lutra .. " -")
  equal(out, "3\n")
end)

test("errors: file, line, message, traceback, status 1", function()
  local path = write("local x = lt.zeros(2, 3)\n\nlt.matmul(x, lt.zeros(4, 5))\n")
  local out, status = shell(lutra .. " " .. path)
  equal(status, 1)
  has(out, "lutra: ")
  has(out, path .. ":3: matmul: shapes {2, 3} and {4, 5} cannot be multiplied (3 != 4)")
  has(out, "stack traceback")
  os.remove(path)
  out, status = shell(lutra .. " -e 'error({})'")
  equal(status, 1)
  out, status = shell(lutra .. " /nowhere/script.lua")
  equal(status, 1)
  has(out, "/nowhere/script.lua")
  out, status = shell(lutra .. " -e 'x = = 1'")
  equal(status, 1)
end)

test("--version, --help", function()
  local out, status = shell(lutra .. " --version")
  equal(status, 0)
  has(out, "LuaJIT")
  out, status = shell(lutra .. " --help")
  equal(status, 0)
  has(out, "-e")
end)

test("LUTRA_LOGS: help lists, an unknown name is an error", function()
  local out = shell("LUTRA_LOGS=help " .. lutra .. " -e ''")
  for _, name in ipairs {"graph_breaks", "guards", "recompiles", "graph"} do has(out, name) end
  local _, status = shell("LUTRA_LOGS=nonsense " .. lutra .. " -e ''")
  truthy(status ~= 0)
end)

test("LUTRA_LOGS=graph prints a captured graph", function()
  local out = shell("LUTRA_LOGS=graph " .. lutra .. [[ -e 'lt.compile(function(x) return x:tanh() end)(lt.ones(2))']])
  has(out, "tanh")
end)

test("a stock luajit loads the library", function()
  local out, status = shell(string.format([[LUA_CPATH='%s/?.so' luajit -e '
    local lt = require "lutra"
    local f = lt.compile(function(x) return (x * 2):relu():sum() end)
    f(lt.ones(3))
    print(f(lt.ones(3)):item(), lt.nn.Linear(2, 3))']], build))
  equal(out, "6\tLinear(in_features=2, out_features=3, bias=True)\n")
  equal(status, 0)
end)

h.finish()
