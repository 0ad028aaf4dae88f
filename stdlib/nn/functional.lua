-- nn.functional: the ops that PyTorch keeps in that namespace, as plain fields that hold the native functions themselves.
local lt = ...

local names = {
  "bilinear", "channel_shuffle", "cross_entropy", "layer_norm", "linear", "log_softmax", "mse_loss", "nll_loss",
  "one_hot", "pad", "pixel_shuffle", "pixel_unshuffle", "relu", "relu_", "rms_norm", "scaled_dot_product_attention",
  "sigmoid", "softmax", "tanh",
}
local spatial = {"adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d", "avg_pool1d", "avg_pool2d",
  "batch_norm", "conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d", "group_norm", "instance_norm", "max_pool1d", "max_pool2d"}

local functional = {}
for _, list in ipairs {names, spatial} do
  for _, name in ipairs(list) do functional[name] = assert(lt[name], name) end
end
return functional
