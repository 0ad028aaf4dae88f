-- Helpers of smoke.lua and must_see.lua: lines that report results, and train steps.
--   local common = dofile(folder .. "common.lua")
local lt = require "lutra"
local F = lt.nn.functional
local M = {failed = 0}

function M.report(name, ok, text)
  if not ok then M.failed = M.failed + 1 end
  print((ok and "ok     " or "FAILED ") .. name .. (text and ": " .. text or ""))
end

-- Prints the program's last line and exits with its status.
function M.finish(name)
  print(name .. (M.failed == 0 and ": ok" or ": " .. M.failed .. " failed"))
  os.exit(M.failed == 0 and 0 or 1)
end

-- Returns a function that computes the cross entropy of the net's rows.
function M.row_loss(net) return function(x, y) return F.cross_entropy(net(x), y) end end

-- Returns a step that trains opt's parameters by loss_of(x, y), eager, or compiled with the options of lt.compile.
function M.train_step(opt, loss_of, options)
  local function step(x, y)
    local loss = loss_of(x, y)
    opt:zero_grad()
    loss:backward()
    opt:step()
    return loss
  end
  return options and lt.compile(step, options) or step
end

return M
