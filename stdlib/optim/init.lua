-- lt.optim: the optimisers.
local _, use = ...
local adam = use "optim.adam"
return {SGD = use "optim.sgd", Adam = adam.Adam, AdamW = adam.AdamW}
