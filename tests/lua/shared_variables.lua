-- Tests variables that closures share with a frame, and frames that call functions whose variables lie elsewhere.
local lt = require "lutra"
local h = require "harness"
local test, equal, truthy = h.test, h.equal, h.truthy

-- Compares three calls of the function that make() returns, compiled and eager. Returns the number of graphs.
local function compare(make)
  local function run(wrap)
    local f, seen = wrap(make()), {}
    for i = 1, 3 do
      for _, v in ipairs {f(lt.ones(3) * i, i)} do
        seen[#seen + 1] = type(v) == "userdata" and table.concat(v:totable(), " ") or tostring(v)
      end
    end
    return table.concat(seen, "\n")
  end
  return h.graphs_of(run)
end

-- A frame whose variable a closure shares, from the break on; `call` is what it then calls.
local function sharing(call)
  return function(x)
    local own = 1
    local function bump() own = own + 1 return own end
    bump()
    lt.graph_break()
    x = call(x * own) + own
    return x, own
  end
end

test("functions whose variables are no frame's any more are inlined", function()
  local graphs = compare(function()
    local function scale(k)
      local calls = 0
      return function(x)
        calls = calls + 1
        return x * k + calls
      end
    end
    return sharing(scale(3))
  end)
  equal(graphs, 1)
end)

test("a variable that is never assigned is read wherever it lies", function()
  local shift = 2
  local function add(x) return x + shift end
  equal(compare(function() return sharing(add) end), 1)
end)

test("a function writes a variable of the frame that calls it", function()
  local graphs = compare(function()
    return function(x)
      local total, steps = 0, {}
      local function note(v) total = total + v steps[#steps + 1] = total return total end
      note(1)
      lt.graph_break()
      x = x * note(2)
      total = total * 3
      x = x + note(4) + total
      lt.graph_break()
      return x + note(5), total, #steps, steps[#steps]
    end
  end)
  truthy(graphs <= 4, graphs)
end)

test("a break in such a function, an error, a variable within a branch", function()
  compare(function()
    return function(x, i)
      local own, log = i, {}
      local function bump(y, how)
        own = own + 1
        if how == 1 then lt.graph_break() end
        own = own * 2
        if how == 2 then error("own is " .. own, 0) end
        return y * own
      end
      lt.graph_break()
      x = bump(x, 0) + own
      x = bump(x, 1) + own
      local ok, why = pcall(bump, x, 2)
      log[1], log[2], log[3] = ok, why, own
      if own > 10 then own = own - bump(x, 0):sum():item() * 0 - 3 end
      return x + own, log[1], log[2], log[3], own
    end
  end)
end)

test("a closure that comes and goes shares the frame's variable, or has one of its own", function()
  compare(function()
    local kept
    return function(x, i)
      local own = i
      local function bump(y) own = own + 1 return y * own end
      kept = kept or bump
      lt.graph_break()
      x = kept(x) + own
      return x, own, kept == bump
    end
  end)
end)

test("a frame below shares the variable that a function above it writes", function()
  compare(function()
    local function f(x, depth, outer)
      local own = depth
      local function bump(y) own = own + 1 return y * own end
      lt.graph_break()
      if depth < 3 then x = f(x, depth + 1, bump) end
      x = (outer or bump)(x) + own
      return x, own
    end
    return function(x) return f(x, 1) end
  end)
end)

h.finish()
