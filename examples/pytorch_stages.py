"""A PyTorch module to stages that run: python examples/pytorch_stages.py."""

import torch
from torch import nn

import stagepack as sp

layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0, batch_first=True)
model, x = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), torch.randn(8, 16, 64)
stages, result = sp.pipe_model(model, (x,), 4, depth=2, output_file="stages.py")
for at, layers in enumerate(stages.layers):
    print(f"stage {at}: {', '.join(layers)}")
print(result.status, torch.allclose(stages(x), model(x), atol=1e-6))
