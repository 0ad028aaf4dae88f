-- A break under calls that functions of varargs make: what is left of the frames is one graph.
local lt = require "lutra"
local h = require "harness"
local test, equal = h.test, h.equal

local compare = require("noted_calls").compare

local x = lt.arange(6):view(2, 3):to("float32") / 10

test("frames with varargs", function()
  for _, depth in ipairs {1, 2, 5, 15} do
    local function make()
      local function f(y, ...)
        local a = y:tanh()
        lt.graph_break()
        return (a + select("#", ...)):exp(), ...
      end
      for _ = 1, depth do
        local inner = f
        f = function(y, ...)
          local r, one = inner(y + 1, 1, ...)
          return r * one, ...
        end
      end
      return f
    end
    equal(compare(make, {{x}, {x * 2}}), 2, "depth " .. depth)
    compare(make, {{x}, {x, 2, x}, {x, nil, nil}, {x, x + 1}, {x, unpack({}, 1, 40)}})
  end
end)

h.finish()
