"""Modules that tests profile and cut: a small ResNet, an encoder, tied weights, nested inputs."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import nn


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)

    def forward(self, x: Any) -> Any:
        inner = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(inner)) + x)


class ResNet(nn.Module):
    """A stem, blocks and a classifier."""

    def __init__(self, blocks: int = 3, channels: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.blocks = nn.Sequential(*(Block(channels) for _ in range(blocks)))
        self.head = nn.Linear(channels, 10)

    def forward(self, x: Any) -> Any:
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def encoder(layers: int = 2, width: int = 32) -> nn.Module:
    """Return an encoder without dropout."""
    layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


class Tied(nn.Module):
    """A language model whose head uses the weights of its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.inner = nn.Linear(8, 8)
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Any) -> Any:
        return self.head(torch.tanh(self.inner(self.embed(ids))))


class Nested(nn.Module):
    """Inputs by keyword and in dictionaries, results in one, a layer that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 3)

    def forward(self, given: dict[str, Any], *, scale: Any = None) -> dict[str, Any]:
        x = self.first(torch.relu(self.first(given["x"])))
        return {"y": self.second(x) * scale, "all": [x, given["other"] + 1]}


class Branches(nn.Module):
    """Goes by what it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return self.inner(x) if x.sum() > 0 else x


class Around(nn.Module):
    """Layers with a way around them, put together at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.third = nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        one = self.first(x)
        return torch.cat([self.third(self.second(one)), one], -1)


class Looked(nn.Module):
    """Looks up integers, after a layer that keeps them in a range."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Hardtanh(0, 3)
        self.table = nn.Embedding(4, 8)

    def forward(self, ids: Any) -> Any:
        return self.table(self.places(ids))


class Unknown(nn.Module):
    """Sorts, runs a recurrent layer, and multiplies where no gradients are kept."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.LSTM(8, 8, batch_first=True)

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            square = x @ x.transpose(-1, -2)
        return self.inner(x)[0].sort().values, x.sort().values, torch.relu(square)


class Pointwise(nn.Module):
    """Works on values by themselves and on sums."""

    def forward(self, x: Any) -> Any:
        y = nn.functional.hardswish(x) + torch.cumsum(x, 0)
        return torch.softmax(y.flatten(1).sum(1, keepdim=True) * y, 1)


class Logs(nn.Module):
    """Says something by a logger of torch."""

    def forward(self, x: Any) -> Any:
        logging.getLogger("torch.export").warning("while it is traced")
        return x + 1


class Turn(nn.Module):
    """Attention where a mask allows it, and a rectifier that works in place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.read = nn.Linear(width, 3 * width)
        self.write = nn.Linear(width, width)

    def forward(self, x: Any, allowed: Any, scale: Any) -> Any:
        x = torch.relu_(x) * scale
        query, key, value = self.read(x).chunk(3, -1)
        scores = (query @ key.transpose(-1, -2)).masked_fill_(~allowed, -1e9)
        return x + self.write(scores.softmax(-1) @ value)


class Decoder(nn.Module):
    """A decoder with inputs by keyword, of which integers and a mask are needed until the end."""

    def __init__(self, layers: int = 4, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, width)
        self.turns = nn.ModuleList(Turn(width) for _ in range(layers))
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, 20, bias=False)

    def forward(self, ids: Any, *, mask: Any, scale: Any) -> dict[str, Any]:
        past = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
        x = start = self.embed(ids)
        for turn in self.turns:
            x = turn(x, mask[:, None, :] & past, scale)
        x = self.norm((x + start).transpose(1, 2)).transpose(1, 2)
        logits = self.head(x)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())
        return {"logits": logits, "next": [ids + 1, mask], "loss": loss}


class Twice(nn.Module):
    """Shows the same memory twice, and writes into it later."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.ReLU(inplace=True)

    def forward(self, x: Any) -> Any:
        y = self.first(x)
        turned = y.transpose(0, 1)
        return self.second(y) @ turned


class Counted(nn.Module):
    """Returns a number of Python that depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)

    def forward(self, x: Any, n: Any) -> Any:
        y = self.first(x)
        times = n.item()
        return self.second(y) * times


class Apart(nn.Module):
    """Makes large things where no gradients are kept, and keeps a small one."""

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            large = x @ x.T
            small = torch.exp(large) @ x
        return x * small


class Fork(nn.Module):
    """Two branches of one tensor; the second one may write into it."""

    def __init__(self, right: nn.Module) -> None:
        super().__init__()
        self.stem, self.left, self.right = nn.Linear(8, 8), nn.Linear(8, 8), right
        self.last = nn.Bilinear(8, 8, 8)

    def forward(self, x: Any) -> Any:
        y = self.stem(x)
        left = self.left(y)
        return self.last(left, self.right(y))
