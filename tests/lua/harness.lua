-- A small test harness. test(name, f) runs f at once and prints failures; at the end of the file, finish() exits with 1 if any failed.
--   local h = require "harness"; local test, equal = h.test, h.equal ... h.finish()
local M = {count = 0, failed = 0}

local function show(v) return type(v) == "string" and string.format("%q", v) or tostring(v) end

function M.test(name, f)
  local only = os.getenv("LUTRA_TEST_ONLY")
  if only and not name:find(only, 1, true) then return end
  M.count = M.count + 1
  local ok, trace = xpcall(f, debug.traceback)
  if not ok then
    M.failed = M.failed + 1
    io.stderr:write("FAILED ", name, "\n", tostring(trace), "\n")
  end
end

function M.equal(got, want, what)
  if got ~= want then error(string.format("%s: got %s, want %s", what or "value", show(got), show(want)), 2) end
end

function M.truthy(got, what)
  if not got then error(string.format("%s: got %s", what or "value", show(got)), 2) end
end

function M.near(got, want, tolerance, what)
  if not (math.abs(got - want) <= (tolerance or 1e-6)) then
    error(string.format("%s: got %.9g, want %.9g", what or "value", got, want), 2)
  end
end

-- Nested tables of numbers, compared element by element.
function M.deep(got, want, tolerance, what)
  what = what or "value"
  if type(want) ~= "table" then
    if type(want) == "number" and type(got) == "number" then return M.near(got, want, tolerance or 0, what) end
    return M.equal(got, want, what)
  end
  M.equal(type(got), "table", what)
  for k, v in pairs(want) do M.deep(got[k], v, tolerance, what .. "[" .. show(k) .. "]") end
  for k in pairs(got) do
    if want[k] == nil then error(what .. ": unexpected key " .. show(k), 2) end
  end
end

-- f(...) must raise a message that contains `text` (plain).
function M.raises(text, f, ...)
  local ok, message = pcall(f, ...)
  if ok then error("no error; wanted one with: " .. text, 2) end
  if not tostring(message):find(text, 1, true) then
    error(string.format("the error %s does not contain %s", show(tostring(message)), show(text)), 2)
  end
end

-- How much longer the tests that scale are to run.
M.scale = tonumber(os.getenv("LUTRA_TEST_SCALE")) or 1

function M.finish()
  if M.count == 0 then
    io.stderr:write("no tests ran\n")
    os.exit(1)
  end
  print(string.format("%d tests, %d failed", M.count, M.failed))
  os.exit(M.failed == 0 and 0 or 1)
end

return M
