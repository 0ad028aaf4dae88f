-- Tests that docs/walkthrough.md shows what its program prints, and names files that exist.
local h = require "harness"
local test, truthy = h.test, h.truthy

local text = h.read "../../docs/walkthrough.md"
-- Paragraphs that are set in by four spaces.
local blocks, block = {}, nil
for line in text:gmatch "([^\n]*)\n" do
  if line:find "^    " then
    if not block then
      block = {}
      blocks[#blocks + 1] = block
    end
    block[#block + 1] = line:sub(5)
  elseif line ~= "" or not block then
    block = nil
  end
end

local base = h.folder()
h.write(base .. "/f.lua", table.concat(blocks[1], "\n") .. "\n")
local stages = text:match "`LUTRA_LOGS=([%w,_]+) lutra f.lua`"
local printed = h.shell(("cd %s && LUTRA_CACHE=off LUTRA_LOGS=%s %s f.lua 2>&1"):format(base, stages, h.program()))

test("each stage is printed as it is shown", function()
  truthy(#blocks >= 6, #blocks .. " blocks")
  truthy(printed:find("tensor(32.)", 1, true), printed)
  for i = 2, #blocks do
    local at = 1
    for _, line in ipairs(blocks[i]) do
      line = line:match "^%s*(.-)%s*$"
      -- Three dots stand for what is left out.
      if not line:find("...", 1, true) then
        local from, to = printed:find(line, at, true)
        truthy(from, ("block %d does not print, in its place: %s\n%s"):format(i, line, printed))
        at = to
      end
    end
  end
end)

test("files and folders that are named exist", function()
  local count = 0
  for name in text:gmatch "`([%w_/]+[%w_.]*)`" do
    if name:find "^%l+/" then
      local file = io.open("../../" .. name, "r")
      truthy(file, name)
      file:close()
      count = count + 1
    end
  end
  truthy(count > 15, count .. " names")
end)

h.shell("rm -rf " .. base)
h.finish()
