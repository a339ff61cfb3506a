"""Stages as one readable file of Python, which needs PyTorch alone."""

from __future__ import annotations

import textwrap

from stagepack.errors import InputError, shown
from stagepack.integrations.pytorch.stages import Stages

HEAD = '''"""The stages of {name}, written by Stagepack.

create_pipeline_configuration(model) puts the parameters and buffers of a model into them; a stage
takes and returns a row of tensors.
"""

from math import inf, nan

import torch
from torch import device, nn

CONSTANTS = {constants}


def adopt(stage, model, names):
    """Give a stage parameters and buffers of a model, by their own names, and constants."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    buffers = dict(model.named_buffers(remove_duplicate=False))
    kept = set(model.state_dict())
    for name in names:
        *path, last = name.split(".")
        owner = stage
        for part in path:
            if not hasattr(owner, part):
                owner.add_module(part, nn.Module())
            owner = getattr(owner, part)
        if name in CONSTANTS:
            owner.register_buffer(last, CONSTANTS[name], persistent=False)
        elif name in parameters:
            owner.register_parameter(last, parameters[name])
        else:
            owner.register_buffer(last, buffers[name], persistent=name in kept)
'''
STAGE = '''

class Stage{at}(nn.Module):
    """Layers {layers}."""

    NAMES = {names}

    def __init__(self, model):
        super().__init__()
        adopt(self, model, self.NAMES)

{forward}
'''
TAIL = '''

STAGES = ({stages},)


def create_pipeline_configuration(model):
    """Return the stages of a model, and what each takes and returns."""
    return {{
        "model inputs": {inputs},
        "model outputs": {outputs},
        "stages": [
            {{"inputs": inputs, "outputs": outputs, "model": stage(model)}}
            for stage, inputs, outputs in zip(STAGES, TAKEN, RETURNED)
        ],
    }}
'''


def written(stages: Stages, name: str) -> str:
    """Return the text of a file with the stages of a module called `name`."""
    parts = [HEAD.format(name=shown(name), constants=_constants(stages))]
    taken, returned = [], []
    for at, module in enumerate(stages.modules):
        code = module.graph.python_code("self").src.strip()
        nodes = list(module.graph.nodes)
        names = [key for key, _ in module.named_parameters(remove_duplicate=False)]
        names += [key for key, _ in module.named_buffers(remove_duplicate=False)]
        taken.append([str(node.name) for node in nodes if node.op == "placeholder"])
        returned.append([str(node.name) for node in nodes[-1].args[0]])
        parts.append(
            STAGE.format(
                at=at,
                layers=", ".join(stages.layers[at]),
                names=_listed(names),
                forward=textwrap.indent(code, "    "),
            )
        )
    parts.append(f"\n\nTAKEN = {taken!r}\nRETURNED = {returned!r}")
    classes = ", ".join(f"Stage{at}" for at in range(len(stages)))
    parts.append(TAIL.format(stages=classes, inputs=taken[0], outputs=returned[-1]))
    return "".join(parts)


def _constants(stages: Stages) -> str:
    """Return the constants of stages as the text of a dictionary."""
    lines = ["{"]
    for name, value in stages.constants.items():
        if value.numel() > 10_000:
            raise InputError(
                f"has {value.numel()} values, more than can be read",
                field=f"constant {name}",
                remedy="register it as a buffer of the module",
            )
        lines.append(f"    {name!r}: torch.tensor({value.tolist()!r}, dtype={value.dtype}),")
    return "\n".join([*lines, "}"]) if stages.constants else "{}"


def _listed(names: list[str]) -> str:
    lines = "".join(f"        {name!r},\n" for name in names)
    return f"[\n{lines}    ]" if names else "[]"
