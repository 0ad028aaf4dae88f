"""Trains the convnet of scripts/models/fashion_mnist.lua in PyTorch: PREFIX.weights.npz, PREFIX.run.npz (images, labels, losses)."""
import sys
import numpy
import torch
import torch.nn as nn
import torch.nn.functional as F

BATCH, STEPS = 32, 50


class Convnet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(64 * 49, 128), nn.Linear(128, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


prefix = sys.argv[1]
torch.manual_seed(0)
net = Convnet()
numpy.savez(prefix + ".weights.npz", **{name: value.numpy() for name, value in net.state_dict().items()})
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
# Classes that can be learned: a pattern each, under noise.
patterns = torch.randn(10, 1, 28, 28)
labels = torch.randint(0, 10, (STEPS, BATCH))
images = patterns[labels] + torch.randn(STEPS, BATCH, 1, 28, 28)
losses = []
for x, y in zip(images, labels):
    loss = F.cross_entropy(net(x), y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
numpy.savez(prefix + ".run.npz", images=images.numpy(), labels=labels.numpy(), losses=numpy.array(losses, dtype=numpy.float64))
