-- lt.check(condition, message) and lt.check_is_size(n, {min=, max=}): conditions that a program states. A false one is
-- an error at the caller's line. In compiled code a true one is a guard at most.
local lt, use = ...
local errors = use "errors"
local keywords = use "keywords"

local M = {}

-- message: a text, or a function that returns one and is called only if it is needed.
function M.check(condition, message)
  if condition == true then return end
  if condition ~= false then errors.wrong("check", "condition", "a boolean", condition) end
  if type(message) == "function" then message = message() end
  if message == nil then errors.fail("check: the condition does not hold") end
  errors.text("check", "message", message)
  errors.fail("%s", message)
end

local bounds = {min = 0, max = math.huge}

function M.check_is_size(n, options)
  options = keywords.check("check_is_size", options, bounds)
  local min, max = options.min, options.max
  errors.number("check_is_size", "min", min)
  errors.number("check_is_size", "max", max)
  n = type(n) == "cdata" and tonumber(n) or n
  errors.count("check_is_size", "n", n, math.max(min, 0))
  if n > max then errors.wrong("check_is_size", "n", "a whole number <= " .. max, n) end
end

return M
