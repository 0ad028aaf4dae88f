-- Run by nvim: a misspelt word in a long text must be found while a timer of the editor goes on.
local lines = {}
for i = 1, 200 do lines[i] = ("the %s fox jumps over the %s dog"):format(i % 3 == 0 and "quick" or "brown", "lazy") end
lines[120] = "the brown fox jmups ovre the lazy dog"
vim.api.nvim_buf_set_lines(0, 0, -1, false, lines)

local ticks = 0
vim.loop.new_timer():start(5, 5, function() ticks = ticks + 1 end)
local ready = false
vim.api.nvim_create_autocmd("User", {pattern = "LutraOdd", callback = function() ready = true end})
vim.cmd "LutraOdd 3"
vim.wait(120000, function() return ready end, 5)
local found = vim.fn.getloclist(0)
io.stdout:write(("%d ticks of the editor meanwhile; first: line %s %s\n"):format(ticks, found[1] and found[1].lnum,
  found[1] and found[1].text))
vim.cmd(ready and ticks > 20 and #found == 3 and found[1].lnum == 120 and "qall!" or "cquit")
