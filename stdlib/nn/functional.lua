-- nn.functional: the ops that PyTorch keeps in that namespace, as plain fields that hold the native functions themselves.
local lt = ...

local names = {
  "bilinear", "channel_shuffle", "cross_entropy", "layer_norm", "linear", "log_softmax", "mse_loss", "nll_loss",
  "one_hot", "pad", "pixel_shuffle", "pixel_unshuffle", "relu", "relu_", "rms_norm", "scaled_dot_product_attention",
  "sigmoid", "softmax", "tanh",
}

local functional = {}
for _, name in ipairs(names) do functional[name] = assert(lt[name], name) end
return functional
