-- lt.optim: the optimisers, and lr_scheduler.
local _, use = ...
local adam = use "optim.adam"
return {Optimizer = use("optim.optimizer").Optimizer, SGD = use "optim.sgd", Adam = adam.Adam, AdamW = adam.AdamW, RMSprop = use "optim.rmsprop", Adagrad = use "optim.adagrad",
        lr_scheduler = use "optim.lr_scheduler"}
