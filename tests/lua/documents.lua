-- Tests that the programs in docs/control_flow.md, each in its own process, print what their comments say.
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

local base = h.folder()
local count = 0
for title, program in h.read("../../docs/control_flow.md"):gmatch "\n## ([^\n]+)\n.-\n```lua\n(.-)```" do
  count = count + 1
  local wanted = {}
  for line in program:gmatch "\n%-%- ([^\n]*)" do wanted[#wanted + 1] = line end
  test(title, function()
    h.write(base .. "/program.lua", program)
    local printed = h.shell(("cd %s && LUTRA_CACHE=off %s program.lua 2>&1"):format(base, h.program()))
    equal((printed:gsub("\t", " "):gsub("\n$", "")), table.concat(wanted, "\n"))
  end)
end
test("there are programs", function() truthy(count >= 4, count) end)

h.shell("rm -rf " .. base)
h.finish()
