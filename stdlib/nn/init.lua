-- lt.nn: Module, Parameter, the layers, functional, init and utils. Each is loaded at its first use. A layer's forward
-- only calls the native op that it names.
local _, use = ...
local base = use "nn.module"
use "nn.hooks"

return use("lazy").fill({Module = base.Module, Parameter = base.Parameter, is_module = base.is_module,
                          is_parameter = base.is_parameter}, {
  functional = "nn.functional", init = "nn.initialisers", utils = "nn.utils", Linear = "nn.linear",
  Bilinear = "nn.bilinear", MultiheadAttention = "nn.attention",
}, {
  ["nn.bags"] = "EmbeddingBag",
  ["nn.batch_norms"] = "BatchNorm1d BatchNorm2d BatchNorm3d GroupNorm InstanceNorm1d InstanceNorm2d SyncBatchNorm",
  ["nn.containers"] = "ModuleList Sequential",
  ["nn.convolutions"] = "Conv1d Conv2d ConvTranspose1d ConvTranspose2d",
  ["nn.dicts"] = "ModuleDict ParameterDict ParameterList",
  ["nn.dropout"] = "AlphaDropout Dropout Dropout1d Dropout2d Dropout3d FeatureAlphaDropout",
  ["nn.elementwise"] = "BCELoss BCEWithLogitsLoss CELU CosineEmbeddingLoss CosineSimilarity CrossEntropyLoss ELU GELU "
    .. "GLU GaussianNLLLoss Hardshrink Hardsigmoid Hardswish Hardtanh HingeEmbeddingLoss HuberLoss KLDivLoss L1Loss "
    .. "LeakyReLU LogSigmoid MSELoss MarginRankingLoss Mish MultiLabelMarginLoss MultiLabelSoftMarginLoss "
    .. "MultiMarginLoss NLLLoss PairwiseDistance PoissonNLLLoss ReLU ReLU6 SELU SiLU Sigmoid SmoothL1Loss "
    .. "SoftMarginLoss Softplus Softshrink Softsign Tanh Tanhshrink Threshold TripletMarginLoss",
  ["nn.fractional"] = "FractionalMaxPool2d",
  ["nn.lazy"] = "LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d LazyConvTranspose1d "
    .. "LazyConvTranspose2d LazyInstanceNorm1d LazyInstanceNorm2d LazyLinear",
  ["nn.losses"] = "CTCLoss TripletMarginWithDistanceLoss",
  ["nn.norms"] = "Embedding LayerNorm RMSNorm",
  ["nn.padding"] = "CircularPad1d CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d "
    .. "ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d "
    .. "ZeroPad1d ZeroPad2d ZeroPad3d",
  ["nn.pools"] = "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveMaxPool1d AdaptiveMaxPool2d AvgPool1d AvgPool2d LPPool1d "
    .. "LPPool2d MaxPool1d MaxPool2d MaxUnpool1d MaxUnpool2d",
  ["nn.quantized"] = "QuantizedLinear",
  ["nn.recurrent"] = "GRU GRUCell LSTM LSTMCell RNN RNNCell",
  ["nn.resampling"] = "Fold LocalResponseNorm Unfold Upsample UpsamplingBilinear2d UpsamplingNearest2d",
  ["nn.shapes"] = "ChannelShuffle Flatten Identity PixelShuffle PixelUnshuffle Unflatten",
  ["nn.slopes"] = "PReLU RReLU",
  ["nn.softmax"] = "LogSoftmax Softmax Softmax2d Softmin",
  ["nn.transformer"] = "Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder "
    .. "TransformerEncoderLayer",
})
