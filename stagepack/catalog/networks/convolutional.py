"""ResNet-50 and VGG-16 as chains of their blocks or layers.

Sources: He et al., *Deep Residual Learning for Image Recognition*, 2016 (with the stride in the
3 x 3 convolution, as in the common implementations); Simonyan and Zisserman, *Very Deep
Convolutional Networks for Large-Scale Image Recognition*, 2015, configuration D.

A convolution from c to d channels with a kernel of k x k that writes o x o pixels has
2 b o^2 d c k^2 flops and c d k^2 weights (+ d for a bias; + 2 d for a batch normalisation).  It
keeps its input for the backward pass, a normalised one also its raw result.
"""

from __future__ import annotations

from dataclasses import replace

from stagepack.errors import InputError
from stagepack.instances.network import Block, Chain, Network

CLASSES = 1000
RESNET50_STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
VGG16 = ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))


def resnet50(
    *, batch: int, image: int, bytes_per_value: int, granularity: str, training: bool
) -> Network:
    """Return ResNet-50: stem, 16 bottlenecks, pooling with the classifier.

    `image` is height and width in pixels, a multiple of 32, `bytes_per_value` that of a weight and
    of an activation.  With the `granularity` "block" a bottleneck is a layer, with "matmul" every
    convolution is one, and the shortcuts cross cuts.  In `training` labels go in and a loss comes
    out.  `batch` is a microbatch.
    """
    b, side = batch, _checked(image) // 2
    chain = Chain(bytes_per_value, fine=granularity == "matmul")
    pixels = chain.tensor("image", 3 * b * image * image)
    stem = _convolution(chain, "stem", pixels, "x0", b, 3, 64, 7, side)
    side //= 2
    chain.tensor("x0", b * 64 * side * side)  # after the pooling
    stem = replace(stem, scratch=4 * chain.tensors["x0"], values=stem.values + b * 256 * side**2)
    chain.add("stem", "stem", [stem])
    x, channels = "x0", 64
    for stage, (count, inner) in enumerate(RESNET50_STAGES):
        for index in range(count):
            name, source = f"{stage + 1}.{index}", side
            if stage > 0 and index == 0:
                side //= 2
            pieces = [
                _convolution(chain, f"reduce {name}", x, f"a{name}", b, channels, inner, 1, source),
                _convolution(
                    chain, f"conv {name}", f"a{name}", f"b{name}", b, inner, inner, 3, side
                ),
            ]
            shortcut = x
            if index == 0:
                shortcut = f"s{name}"
                pieces.append(
                    _convolution(
                        chain, f"shortcut {name}", x, shortcut, b, channels, 4 * inner, 1, side
                    )
                )
            out = f"x{name}"
            last = _convolution(
                chain, f"expand {name}", f"b{name}", out, b, inner, 4 * inner, 1, side
            )
            pieces.append(
                replace(
                    last,
                    inputs=(f"b{name}", shortcut),
                    values=last.values + b * 4 * inner * side * side,
                )
            )
            shape = f"bottleneck {source} {channels}-{inner}"
            chain.add(f"bottleneck {name}", shape, pieces)
            x, channels = out, 4 * inner
    result, labels = _result(chain, b, training)
    chain.layer(
        "head",
        flops=2 * b * channels * CLASSES,
        values=b * channels * side * side + b * CLASSES,
        weights=(channels + 1) * CLASSES,
        inputs=(x, *labels),
        outputs=(result,),
        saved=b * (channels + CLASSES) * bytes_per_value,
    )
    return chain.network("resnet-50")


def vgg16(*, batch: int, image: int, bytes_per_value: int, training: bool) -> Network:
    """Return VGG-16: 13 convolutions, 5 poolings, 3 fully connected layers, 21 in all.

    Images of another size than 224 are pooled to the 7 x 7 that the first fully connected layer
    reads.  `batch`, `image`, `bytes_per_value` and `training` are those of :func:`resnet50`.
    """
    b, side = batch, _checked(image)
    chain = Chain(bytes_per_value)
    x, channels = chain.tensor("image", 3 * b * side * side), 3
    for group, (count, width) in enumerate(VGG16, 1):
        for index in range(1, count + 1):
            name = f"conv {group}.{index}"
            block = _convolution(chain, name, x, name, b, channels, width, 3, side, norm=False)
            chain.add(name, block.shape, [block])
            x, channels = name, width
        name, before = f"pool {group}", chain.tensors[x]
        side //= 2
        chain.layer(
            name,
            values=before // bytes_per_value,
            inputs=(x,),
            outputs=(chain.tensor(name, b * channels * side * side),),
            saved=before,
        )
        x = name
    features = 7 * 7 * channels
    for index, (source, target) in enumerate(((features, 4096), (4096, 4096), (4096, CLASSES)), 1):
        name = f"fc {index}"
        labels: tuple[str, ...] = ()
        if index < 3:
            out = chain.tensor(name, b * target)
        else:
            out, labels = _result(chain, b, training)
        chain.layer(
            name,
            flops=2 * b * source * target,
            values=2 * b * target + (chain.tensors[x] // bytes_per_value if index == 1 else 0),
            weights=(source + 1) * target,
            inputs=(x, *labels),
            outputs=(out,),
            saved=b * source * bytes_per_value,
        )
        x = out
    return chain.network("vgg-16")


def _convolution(
    chain: Chain,
    name: str,
    source: str,
    target: str,
    b: int,
    channels: int,
    width: int,
    kernel: int,
    side: int,
    *,
    norm: bool = True,
) -> Block:
    """Return a convolution that reads `source` and writes `side` x `side` pixels of `width`.

    `norm`: with a batch normalisation instead of a bias; a rectifier follows either way, and
    works in place.
    """
    outputs = b * side * side * width
    chain.tensor(target, outputs)
    taps = channels * kernel * kernel
    saved = chain.tensors[source] + (chain.tensors[target] if norm else 0)
    return Block(
        name=name,
        shape=f"conv {kernel}x{kernel} {channels}-{width} at {side}",
        flops=2 * outputs * taps,
        values=(4 if norm else 2) * outputs,
        weights=width * (taps + (2 if norm else 1)),
        inputs=(source,),
        outputs=(target,),
        saved=saved,
    )


def _result(chain: Chain, b: int, training: bool) -> tuple[str, tuple[str, ...]]:
    """Return the tensor that goes back to the host, and the labels read to make a loss."""
    if training:
        return chain.tensor("loss", 1, 4), (chain.tensor("labels", b, 4),)
    return chain.tensor("logits", b * CLASSES), ()


def _checked(image: int) -> int:
    if image % 32:
        raise InputError(
            f"{image} pixels cannot be halved five times",
            field="image",
            remedy="give a multiple of 32",
        )
    return image
