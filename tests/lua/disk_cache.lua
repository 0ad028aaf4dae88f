-- Tests the disk cache with whole programs: a second process uses the first one's code and computes the same. Code that
-- is damaged, half written or belongs to another user is compiled again. (tests/artifact takes artifacts apart,
-- tests/cuda/cache.lua tests GPU kernels.)
local h = require "harness"
local test, equal, truthy, shell = h.test, h.equal, h.truthy, h.shell

local lutra, base = h.program(), h.folder()
local scale = tonumber(os.getenv("LUTRA_TEST_SCALE") or 1)
local kept = base .. "/kept"

-- Standard output and standard error of a program in a process of its own.
local function command(file, environment)
  return ("env LUTRA_CACHE=on LUTRA_CACHE_DIR=%s %s %s %s 2>&1"):format(kept, environment or "", lutra, file)
end
local function run(file, environment) return shell(command(file, environment)) end
local function entries() return tonumber(shell("find " .. kept .. " -type f 2>/dev/null | wc -l")) end
local function forget() shell("rm -rf " .. kept) end
local counted = "\nlocal c = lt.counters().disk_cache print('hits ' .. c.hits .. ', misses ' .. c.misses .. ', refused ' .. c.refused)"
local function program(name, text) return h.write(base .. "/" .. name .. ".lua", text .. counted) end

-- Runs it twice: the second process compiles nothing. Gives what both print.
local function twice(file, environment)
  local cold, warm = run(file, environment), run(file, environment)
  local misses = tonumber(cold:match("hits 0, misses (%d+), refused 0"))
  truthy(misses, cold)
  equal(warm, (cold:gsub("hits 0, misses %d+", ("hits %d, misses 0"):format(misses))), "the second process")
  return cold, misses
end

local train = program("train", h.training)

-- A forward whose backward comes later, a graph break, a symbolic size, an in-place write, a constant, a number that
-- changes.
local parts = program("parts", [[
lt.manual_seed(5)
local w = lt.randn(4, 4, {requires_grad = true})
local forward = lt.compile(function(x) return (x:matmul(w):sigmoid() * x):sum(1) end)
for n = 3, 6 do
  local y = forward(lt.randn(n, 4))
  y:sum():backward()
  print(("%a %a"):format(y:sum():item(), w.grad:sum():item()))
end
local broken = lt.compile(function(x) local a = x:exp() print("a break", a.shape[1]) return a:log1p() + 1 end)
print(("%a"):format(broken(lt.ones(3)):sum():item()))
local m = lt.eye(3)
local write = lt.compile(function(x, scale) x:mul_(scale) x[1]:add_(m[2]) return x:view(-1):cumsum(0) end)
for i = 1, 3 do print(("%a"):format(write(lt.ones(3, 3), i / 2):sum():item())) end]])

-- Sizes that elements decide; an operand that is absent.
local sizes = program("sizes", [[
local f = lt.compile(function(x)
  local y = x:abs():long()
  return lt.bincount(y, {minlength = 3}) + 1, lt.bincount(y, x), x[x:gt(0)] * 2
end)
for i = 1, 3 do
  for k, v in ipairs {f(lt.tensor({1, 2, 3, -3}) * i)} do print(k, v:sum():item()) end
end]])

test("a second process takes what the first one kept", function()
  local _, misses = twice(train)
  truthy(misses >= 2)
  equal(entries(), misses)
  truthy(select(2, twice(parts)) >= 4)
  truthy(select(2, twice(sizes)) >= 1)
  local before = entries()
  equal(run(train, "LUTRA_CACHE=off"):gsub("hits.*", ""), run(train):gsub("hits.*", ""), "with and without")
  equal(entries(), before)
end)

test("what a program depends on is in the key: the instruction set, the lines of the source, the build", function()
  local n = entries()
  truthy(run(train, "LUTRA_ISA=interp"):find("hits 0"))
  truthy(entries() > n)
  local moved = h.write(base .. "/moved.lua", "\n" .. h.read(train))
  truthy(run(moved):find("hits 0"))
end)

test("errors of code that was kept name what eager names", function()
  local wrong = program("wrong", [[
local f = lt.compile(function(x, i)
  local y = x * 2

  return y:index_select(0, i)
end)
print(f(lt.ones(3), lt.tensor({1}, {dtype = "int64"})):item())
print(select(2, pcall(f, lt.ones(3), lt.tensor({7}, {dtype = "int64"}))))]])
  local text = twice(wrong)
  truthy(text:find("wrong.lua:4: index_select: index 7 is out of bounds for dimension 0 with size 3", 1, true), text)
end)

test("guards that compiling asked for are asked of code that was kept", function()
  local guards = program("guards", [[
local f = lt.compile(function(x, y) return x:cat({y}, 0):sum(0) + x:reshape(-1, 2):amax(1):sum() end, {dynamic = true})
for _, n in ipairs {4, 6, 2, 1, 1000, 0} do
  local ok, r = pcall(function() return f(lt.ones(n, 4), lt.ones(2, 4)):sum():item() end)
  print(n, ok and r)
end
print(table.concat(lt.guards(f), "\n"))]])
  twice(guards)
end)

test("damaged entries are compiled again, and replaced", function()
  forget()
  local want = run(train):gsub("hits.*", "")
  local n = entries()
  for _, damage in ipairs {"truncate -s 100 $f", "truncate -s 0 $f",
    "printf xxxx | dd of=$f bs=1 seek=60000 conv=notrunc status=none",
                           "printf x | dd of=$f bs=1 seek=9 conv=notrunc status=none", "cp " .. train .. " $f",
                             "rm $f; mkdir $f",
                           "rm -rf $f; ln -s /dev/zero $f"} do
    shell("for f in " .. kept .. "/segment/*; do " .. damage .. "; done")
    local text = run(train)
    equal(text:gsub("hits.*", ""):gsub("lutra: [^\n]*: Is a directory; compiled code is not kept\n", ""), want, damage)
    truthy(text:find("hits 0"), damage .. text)
    shell("find " .. kept .. "/segment -mindepth 1 -type d -empty -delete")
    run(train)
    truthy(run(train):find("misses 0"), damage)
    equal(entries(), n, damage)
  end
end)

test("an entry of another program in the place of its own is not taken", function()
  forget()
  local want = run(parts):gsub("hits.*", "")
  shell(("cd %s/segment && set -- * && cp $1 x && for f in $@; do [ $f = $1 ] || mv $f $1 2>/dev/null; done; rm -f x"):format(kept))
  equal(run(parts):gsub("hits.*", ""), want)
end)

test("writers that are killed leave nothing that is taken", function()
  forget()
  local want = run(train):gsub("hits.*", "")
  local rounds = math.max(10, math.floor(30 * scale))
  for i = 1, rounds do
    if i % 4 == 1 then shell("rm -rf " .. kept .. "/segment") end
    shell(("%s & p=$!; sleep 0.0%02d; kill -9 $p 2>/dev/null; wait $p 2>/dev/null"):format(command(train)
      .. " >/dev/null", i * 7 % 60))
    if i % 10 == 0 then equal(run(train):gsub("hits.*", ""), want, "round " .. i) end
  end
  equal(run(train):gsub("hits.*", ""), want)
  truthy(run(train):find("misses 0"))
end)

test("processes that race for one folder", function()
  for _ = 1, math.max(2, math.floor(3 * scale)) do
    forget()
    local outputs = {}
    for i = 1, 3 do outputs[i] = ("(%s > %s/out%d) &"):format(command(train), base, i) end
    shell(table.concat(outputs, " ") .. " wait")
    local want = h.read(base .. "/out1"):gsub("hits.*", "")
    for i = 2, 3 do equal(h.read(("%s/out%d"):format(base, i)):gsub("hits.*", ""), want) end
    truthy(run(train):find("misses 0"))
  end
end)

-- A file system of a few pages, where this machine lets us have one. (tests/cuda_codegen/disk_cache_test.cc limits the
-- size of files.)
local function without_room(file)
  return shell(("mkdir -p %s && unshare -m sh -c 'mount -t tmpfs -o size=40k none %s && %s'"):format(kept, kept,
    command(file)))
end

test("a disk without room: told in a line, and work goes on", function()
  forget()
  if shell("unshare -m sh -c 'mount -t tmpfs none /mnt && echo can' 2>/dev/null") ~= "can\n" then return end
  local want, text = run(train):gsub("hits.*", ""), without_room(train)
  truthy(text:find("No space left on device; compiled code is not kept", 1, true), text)
  equal(select(2, text:gsub("not kept", "")), 1)
  equal(text:gsub("lutra: [^\n]*\n", ""):gsub("hits.*", ""), want)
end)

test("a folder that others may write to: told in a line, and not used", function()
  forget()
  run(train)
  shell("chmod 777 " .. kept .. "/segment")
  local text = run(train)
  truthy(text:find("others may write to it; compiled code is not kept", 1, true), text)
  truthy(text:find("hits 0"), text)
end)

test("read only; off; how much there may be", function()
  forget()
  truthy(run(train, "LUTRA_CACHE=read"):find("hits 0"))
  equal(entries(), 0)
  run(train)
  local n = entries()
  truthy(run(parts, "LUTRA_CACHE=read"):find("hits 0"))
  equal(entries(), n)
  truthy(run(train, "LUTRA_CACHE=read"):find("misses 0"))
  truthy(run(train, "LUTRA_CACHE=off"):find("hits 0, misses 0"))
  h.raises("config: cache must be one of on|read|off, got 'onn'", function() lt.config.cache = "onn" end)
  equal(lt.config.cache_mb, 1024)
end)

test("random programs in two processes", function()
  for _, class in ipairs {"programs", "train", "history"} do
    forget()
    local fuzz = ("cd ../fuzz && %s 2>&1"):format(command("run.lua " .. class, "LUTRA_TEST_SCALE=" .. scale * 0.15))
    local cold = shell(fuzz)
    truthy(cold:find(", 0 failed", 1, true), cold)
    local n = entries()
    truthy(n > 10, n .. " entries")
    truthy(shell(fuzz):find(", 0 failed", 1, true), "the second process")
    -- Under lt.auto, times decide which frames are compiled. The order of tables differs, too.
    truthy(entries() - n <= n / 4, "the second process compiled " .. entries() - n)
  end
end)

test("stages that are printed are run", function()
  run(train)
  truthy(run(train, "LUTRA_LOGS=schedule"):find("plan {", 1, true))
  truthy(run(train, "LUTRA_LOGS=perf"):find("compiled in [%d.]+ ms: cache [%d.]+; %d+ kernels"))
end)

test("lutra cache lists and clears", function()
  forget()
  run(train)
  local list = shell(("LUTRA_CACHE_DIR=%s %s cache list"):format(kept, lutra))
  truthy(list:find("segment +[%d.]+ kB +now  " .. base:gsub("%p", "%%%0") .. "/train.lua:%d+, %d+ ops"), list)
  truthy(list:find("kB of 1024.0 MB in " .. kept, 1, true), list)
  truthy(shell(("LUTRA_CACHE_DIR=%s %s cache clear"):format(kept, lutra)):find("^%d+ files removed"))
  equal(entries(), 0)
  truthy(run(train):find("hits 0"))
  truthy(shell(lutra .. " cache clean 2>&1"):find("cache: usage: lutra cache list|clear; did you mean 'clear'?", 1,
    true))
end)

shell("rm -rf " .. base)
h.finish()
