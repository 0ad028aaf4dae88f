-- Run by embed.c with two arguments.
local a, b = ...
assert(arg[1] == a and arg[2] == b and arg[0]:find("embed%.lua$"))
seen = a .. " " .. b .. " " .. select("#", ...)
