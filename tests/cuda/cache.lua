-- Tests the disk cache of kernels with whole programs: where it stores them, that they are found again and shared by
-- processes, and that a bad directory or entry is ignored. (tests/cuda_codegen/disk_cache_test.cc tests entries.)
package.path = "../lua/?.lua;" .. package.path
local h = require "harness"
local test, equal, truthy, shell = h.test, h.equal, h.truthy, h.shell

local lutra, base = h.program(), h.folder()
local log = base .. "/compiled"

local function entries(folder) return tonumber(shell("find " .. folder .. " -type f 2>/dev/null | wc -l")) end
-- Returns how many programs were compiled since the last call.
local function compiled()
  local n = tonumber((shell("cat " .. log .. " 2>/dev/null | wc -l")))
  os.remove(log)
  return n
end

local program = "local f = lt.compile(function(x) return (x * 3 + 1):tanh():sum(1) end) " ..
  "print(f(lt.ones(4, 5, {device = 'cuda'})):cpu():totable()[2])"
-- Returns standard output and standard error of a program in its own process.
local function command(environment, text)
  return ("cd %s && env -u LUTRA_CACHE_DIR FAKE_NVRTC_LOG=%s HOME=%s/home XDG_CACHE_HOME=%s/xdg %s %s -e %q 2>&1"):format(base, log, base, base, environment, lutra, text)
end
-- Returns what commands print, without AddressSanitizer's warnings about the fake driver's stacks.
local function printed(commands)
  local text = shell(commands)
  for _, line in ipairs {"==%d+==WARNING: ASan is ignoring[^\n]*", "False positive error reports may follow",
    "For details see [^\n]*issues/189"} do
    text = text:gsub(line .. "\n", "")
  end
  return text
end
local function run(environment, text) return printed(command(environment or "", text or program)) end

local want = run()
test("in the user's cache directory, and found again", function()
  truthy(want:find("^4%.99"), want)
  truthy(compiled() > 0)
  truthy(entries(base .. "/xdg/lutra/cubin") > 0)
  equal(shell("stat -c %a " .. base .. "/xdg/lutra"), "700\n")
  equal(run(), want)
  equal(compiled(), 0)
end)

test("lt.config.cache_dir, before it LUTRA_CACHE_DIR", function()
  local before = entries(base .. "/xdg")
  equal(run("LUTRA_CACHE_DIR=" .. base .. "/named"), want)
  truthy(entries(base .. "/named/cubin") > 0)
  equal(run("LUTRA_CACHE_DIR=" .. base .. "/unused", ("lt.config.cache_dir = '%s/set' "):format(base) .. program), want)
  truthy(entries(base .. "/set/cubin") > 0)
  equal(entries(base .. "/unused"), 0)
  equal(run(nil, "lt.config.cache_dir = 'relative' " .. program), want)
  truthy(entries(base .. "/relative/cubin") > 0)
  equal(entries(base .. "/xdg"), before)
  truthy(compiled() > 0)
  equal(run("LUTRA_CACHE_DIR=" .. base .. "/unused", "lt.config.cache_dir = nil " .. program), want)
  equal(compiled(), 0, "back to the usual place")
end)

test("lutra-opt takes and keeps none", function()
  local graph = h.write(base .. "/graph", "graph {\n  %0 = input 'x' : f32[100] strides [1]\n" ..
    "  %1 = mul(%0, 2.0) : f32[100] strides [1]\n  return %1\n}\n")
  local opt = lutra:gsub("[^/]*$", "") .. "lutra-opt"
  local text = shell(("env FAKE_NVRTC_LOG=%s XDG_CACHE_HOME=%s/opt %s --device cuda --stage asm %s 2>&1"):format(
    log, base, opt, graph))
  truthy(text:find("sync_dependencies", 1, true), text)
  truthy(compiled() > 0)
  equal(entries(base .. "/opt"), 0)
end)

test("entries that were cut short or changed are compiled again, and replaced", function()
  local cubins = base .. "/xdg/lutra/cubin"
  local n = entries(cubins)
  for _, damage in ipairs {"truncate -s 100", "truncate -s 0",
    "sh -c 'printf xxxx | dd of=$0 bs=1 seek=40 conv=notrunc status=none'"} do
    shell(("for f in %s/*; do %s $f; done"):format(cubins, damage))
    equal(run(), want)
    truthy(compiled() >= 1)
    equal(entries(cubins), n)
    equal(run(), want)
    equal(compiled(), 0)
  end
end)

test("two processes on one directory", function()
  for _ = 1, 3 do
    local both = ("(%s) & (%s) & wait"):format(command("LUTRA_CACHE_DIR=" .. base .. "/two", program),
      command("LUTRA_CACHE_DIR=" .. base .. "/two", program))
    equal(printed(both), want .. want)
  end
  equal(entries(base .. "/two/cubin"), entries(base .. "/named/cubin"))
  compiled()
  equal(run("LUTRA_CACHE_DIR=" .. base .. "/two"), want)
  equal(compiled(), 0)
end)

test("what a launch waited for its code is compilation, no time of the launch", function()
  local text = run("LUTRA_CACHE_DIR=" .. base .. "/timed", "local q = lt.ones(1, 1, 8, 16, {device = 'cuda'}) " ..
    "local p = lt.profile(lt.nn.functional.scaled_dot_product_attention)(q, q, q) print(p.kernels[1].ms < p.compile_ms)")
  truthy(compiled() > 0)
  equal(text, "true\n")
end)

test("a directory that cannot be: a line once, and work goes on", function()
  shell("touch " .. base .. "/file")
  local text = run("LUTRA_CACHE_DIR=" .. base .. "/file/cache", program
    .. " print(lt.ones(3, {device = 'cuda'}):cumsum(0):sum():item())")
  equal(text, ("lutra: %s/file/cache/cubin: Not a directory; compiled code is not kept\n%s6\n"):format(base, want))
end)

shell("rm -rf " .. base)
h.finish()
