-- Tests mode "max-autotune" and `lutra tune`: library calls use the fastest candidate, with the same results.
local h = require "harness"
local lt = require "lutra"
local test, equal, truthy, raises = h.test, h.equal, h.truthy, h.raises

local folder = h.folder()
local program = h.program()
local environment = "LUTRA_CACHE=on LUTRA_CACHE_DIR=" .. folder .. "/cache "

local function run(command) return h.shell(command .. ' 2>&1; echo "exit $?"') end

local function products_of(f)
  local out = {}
  for _, k in ipairs(f.kernels) do
    if k.library then out[#out + 1] = k end
  end
  return out
end

test("max-autotune finds out while a function runs", function()
  lt.manual_seed(1)
  local w = lt.randn(96, 33)
  local conv = lt.nn.Conv2d(3, 5, 3)
  local function f(x, image) return x:mm(w):relu():sum(), conv(image) end
  local x, image = lt.randn(40, 96), lt.randn(2, 3, 20, 20)
  local want, picture = f(x, image)
  local c = lt.compile(f, {mode = "max-autotune"})
  local measured, found = false, false
  for _ = 1, 60 do
    local p = lt.profile(c)(x, image)
    truthy(lt.equal(p.result[1], want) and lt.equal(p.result[2], picture))
    local products = products_of(p)
    equal(#products, 2)
    found = true
    for _, k in ipairs(products) do
      measured = measured or k.why:find("being measured", 1, true) ~= nil
      found = found and k.why:find("the fastest of", 1, true) ~= nil
    end
    if found then break end
  end
  truthy(measured and found)
  -- Functions that do not ask for tuning use the choice in the table.
  for _, k in ipairs(products_of(lt.profile(lt.compile(f))(x, image))) do equal(k.why, "the table's choice") end
  -- A train step, whose sizes change.
  local net = lt.nn.Linear(8, 4)
  local opt = lt.optim.SGD(net:parameters(), {lr = 0.01})
  local step = lt.compile(function(input)
    opt:zero_grad()
    local loss = net(input):pow(2):sum()
    loss:backward()
    opt:step()
    return loss
  end, {mode = "max-autotune"})
  for i = 1, 40 do truthy(step(lt.randn(4 + i % 3, 8)):item() >= 0) end
  raises("compile: unknown mode 'max-autotun' (known: default, reduce-overhead, max-autotune); did you mean",
    lt.compile, f, {mode = "max-autotun"})
end)

test("lutra tune keeps what it finds for all programs", function()
  local script = h.write(folder .. "/script.lua", [[
    lt.manual_seed(0)
    local a, b = lt.randn(70, 300), lt.randn(300, 90)
    local x = lt.zeros(5)
    x:index_add_(0, lt.tensor({0, 1, 0}, {dtype = lt.int64}), lt.ones(3))
    print("arguments", ...)
    print("sum", x:sum():item(), a:mm(b):sum():item())
    for _, k in ipairs(lt.profile(function() return a:mm(b) end)().kernels) do print(k.name, k.why) end
    if ... == "leave" then os.exit(3) end
    if ... == "fail" then error("on purpose") end]])
  local plain = run(environment .. program .. " " .. script)
  truthy(plain:find("mm\tthe table's choice\n", 1, true), plain)
  local said = run(environment .. program .. " tune " .. script .. " one two")
  truthy(said:find("arguments\tone\ttwo\n", 1, true), said)
  truthy(said:find("of %d+: mm float32%[70,300%], float32%[300,90%] %-> float32%[70,90%]; cpu, %d+ thread"), said)
  truthy(said:find("kept in " .. folder .. "/cache/tuning.txt", 1, true) and said:find("exit 0", 1, true), said)
  equal(said:match("sum\t[^\n]*"), plain:match("sum\t[^\n]*"))
  local after = run(environment .. program .. " " .. script)
  truthy(after:find("mm\t[^\n]*the fastest of"), after)
  equal(after:match("sum\t[^\n]*"), plain:match("sum\t[^\n]*"))
  -- A choice in the table is measured again.
  local path = folder .. "/cache/tuning.txt"
  h.write(path, (h.read(path):gsub(" mm tiles 0 %d+ %S+ ", " mm tiles 0 1 9.9 ")))
  truthy(run(environment .. program .. " " .. script):find("9.90 times as fast", 1, true))
  said = run(environment .. program .. " tune " .. script)
  truthy(not said:find("9.90 x", 1, true) and not h.read(path):find(" 9.9 ", 1, true), said)
  -- Without the cache there is no table.
  truthy(run(environment .. "LUTRA_CACHE=off " .. program .. " " .. script):find("mm\tthe table's choice\n", 1, true))
  said = run(environment .. program .. " tune " .. script .. " leave")
  truthy(said:find("kept in ", 1, true) and said:find("exit 3", 1, true), said)
  said = run(environment .. program .. " tune " .. script .. " fail")
  truthy(said:find("kept in ", 1, true) and said:find("on purpose", 1, true) and said:find("exit 1", 1, true), said)
  -- A table that is damaged, or from another build, is not used.
  local text = h.read(path)
  local damaged = {"", "lutra-tuning 1 none\n" .. text:match("\n(.*)"), text:gsub("\n%x+", "\nzz"),
    text:gsub(" tiles ", " nobody "), text:gsub("tiles %d+ %d+", "tiles 7 -3"), text:sub(1, -40), "\0\1\n\2"}
  for _, damage in ipairs(damaged) do
    h.write(path, damage)
    local again = run(environment .. program .. " " .. script)
    equal(again:match("sum\t[^\n]*"), plain:match("sum\t[^\n]*"))
    truthy(again:find("exit 0", 1, true), again)
  end
  said = run("LUTRA_CACHE=on LUTRA_CACHE_DIR=/dev/null " .. program .. " tune " .. script)
  truthy(said:find("lutra: tune: cannot write /dev/null/tuning.txt", 1, true), said)
end)

test("what a short program finds is there for the next, and processes do not lose each other's", function()
  local script = h.write(folder .. "/short.lua", [[
    local n = tonumber(...)
    local f = lt.compile(function(x, y) return x:mm(y) end, {mode = "max-autotune"})
    local x, y = lt.ones(n, 8), lt.ones(8, 5)
    for _ = 1, 60 do f(x, y) end]])
  local path = folder .. "/cache/tuning.txt"
  os.remove(path)
  local all = {}
  for n = 11, 18 do all[#all + 1] = ("%s%s %s %d &"):format(environment, program, script, n) end
  run("(" .. table.concat(all, " ") .. " wait)")
  local text = h.read(path)
  for n = 11, 18 do truthy(text:find((" mm float32[%d,8],"):format(n), 1, true), text) end
end)

os.execute("rm -rf " .. folder)
h.finish()
