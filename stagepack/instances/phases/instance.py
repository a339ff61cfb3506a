"""Instances of phase scheduling: construction, evaluation and checking of solutions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np

from stagepack.errors import InputError
from stagepack.files import in_bytes
from stagepack.instances import clusters
from stagepack.instances.arrays import Given, integer, integers, names, whole_bytes
from stagepack.instances.base import Answered, Rules
from stagepack.instances.phases import validate
from stagepack.instances.phases.check import check, evaluate, shape
from stagepack.instances.phases.chips import of_device, whole_cycles
from stagepack.instances.phases.data import PhaseData, PhaseSolution, Policy
from stagepack.instances.phases.modes import Mode
from stagepack.instances.phases.problem import Objective
from stagepack.instances.profile import Chip, Cluster, ModelProfile
from stagepack.instances.words import member

CHIP = tuple(name for name in Chip.__struct_fields__ if name != "name")


class PhaseSchedule(PhaseData, Answered[PhaseSolution, int]):
    """An instance of phase scheduling; use :meth:`from_arrays` or :meth:`from_profile`.

    Their arguments become the fields of the instance.
    """

    solution_type = PhaseSolution
    rules = Rules(shape, check, evaluate)
    beside = ("steps", *CHIP)

    @classmethod
    def from_arrays(
        cls,
        variables: Given,
        forward: Given,
        activations: Given,
        *,
        backward: Given = None,
        state: Given = None,
        sharding: Given = None,
        update: Given = None,
        temporary: Given = None,
        tape: Given = None,
        forward_fixed: Given = None,
        backward_fixed: Given = None,
        temporary_fixed: Given = None,
        skips: Iterable[tuple[int, int]] = (),
        layer_class: Given = None,
        chip: Chip | None = None,
        memory: int | str | None = None,
        tiles: int | None = None,
        io_tiles: tuple[int, int] | None = None,
        remote_bandwidth: float | None = None,
        host_bandwidth: float | None = None,
        tile_bandwidth: float | None = None,
        gather_bandwidth: float | None = None,
        startup: int | None = None,
        microbatch: int | None = None,
        global_batch: int | None = None,
        data_parallel: int = 1,
        steps: int | None = None,
        modes: Iterable[Mode | str] = tuple(Mode),
        training: bool = False,
        policies: Iterable[Policy | str] = (Policy.STASH,),
        recomputations: int = 1,
        prefetch: bool = False,
        fixed_boundaries: Iterable[int] | None = None,
        remote_memory: int | str | None = None,
        graphs: int | None = None,
        layer_names: Sequence[str] | None = None,
        objective: Objective | str = Objective.TIME,
        name: str = "phases",
        source: str = "",
    ) -> PhaseSchedule:
        """Build an instance from arrays.

        Parameters
        ----------
        variables, forward : array_like of int, shape (n,)
            Bytes of each layer's variables, and cycles of its forward pass.
        activations : array_like of int, shape (n + 1,)
            Bytes of x_0 ... x_n.
        backward, update : array_like of int, shape (n,), optional
            Cycles of the backward pass and of the optimiser's update; zeros when absent.
        state, temporary, tape : array_like of int, shape (n,), optional
            Bytes of optimiser state, bytes while the layer runs, and bytes written forward that its
            backward pass reads; zeros when absent.
        sharding : array_like of int, shape (n,), optional
            Over how many replicas variables and state are sharded (replicated tensor sharding);
            ones when absent.
        forward_fixed, backward_fixed, temporary_fixed : array_like of int, shape (n,), optional
            Parts that do not grow with the microbatch, where that is free: one of b needs fixed + b
            * figure.  Zeros when absent.
        skips : iterable of (int, int)
            (u, v): layer v > u + 1 reads the output of layer u, too (u = -1: the input).
        layer_class : array_like of int, shape (n,), optional
            Layers of one class share their graph; all differ when absent.
        chip : Chip
            The chip; the fields that follow replace its own, or describe a simple chip without it.
        memory, tiles, startup : int, optional
            Bytes and tiles of the chip; cycles before a phase.
        io_tiles : (int, int), optional
            The fewest and the most tiles that may be set aside for transfers.
        remote_bandwidth, host_bandwidth, tile_bandwidth, gather_bandwidth : float, optional
            As :class:`.Chip` has them.
        microbatch, global_batch, data_parallel, steps : int
            With `steps`, the microbatch is given (1 when absent) and determines the global batch.
            `global_batch` and `microbatch` determine the steps: steps * microbatch * data_parallel
            = global_batch.  With `global_batch` alone, the microbatch is decided by the solver, and
            all figures are per sample.  With none of them, there is one step.
        modes, policies : iterable of str
            The ways to run a loop, and in training the policies, that are allowed.
        training, prefetch : bool
            Whether there is a backward pass; whether variables of the next phase may be loaded
            ahead.
        recomputations : int
            Largest number of times that one layer may be computed again.
        fixed_boundaries : iterable of int, optional
            The only boundaries allowed, 0 and n included; any when absent.
        remote_memory, graphs : int, optional
            Most bytes of remote memory, most distinct graphs; no limit when absent.
        layer_names : sequence of str, optional
            Numbers when absent.
        objective : Objective or str
        name, source : str
            For tables and reports.

        Raises
        ------
        InputError
            Naming the field: shapes, negative or fractional figures, skips that lead backward,
            unknown modes or policies, a batch that is no whole number of steps, numbers of I/O
            tiles that no allowed mode can use, figures whose sums would exceed 2**62.
        """
        loads = integers(variables, "variables", "layer", least=0)
        n = len(loads)
        if n == 0:
            raise InputError("no layers", field="layers", remedy="give at least one layer")
        columns = {
            "state": state,
            "update": update,
            "forward": forward,
            "backward": backward,
            "temporary": temporary,
            "tape": tape,
            "forward_fixed": forward_fixed,
            "backward_fixed": backward_fixed,
            "temporary_fixed": temporary_fixed,
            "sharding": np.ones(n, dtype=np.int64) if sharding is None else sharding,
            "layer_class": np.arange(n) if layer_class is None else layer_class,
        }
        facts = {
            "memory": in_bytes(memory, "memory"),
            "tiles": tiles,
            "io_tiles": io_tiles,
            "remote_bandwidth": remote_bandwidth,
            "host_bandwidth": host_bandwidth,
            "tile_bandwidth": tile_bandwidth,
            "gather_bandwidth": gather_bandwidth,
            "startup": startup,
        }
        chosen, batch = validate.batch(microbatch, global_batch, data_parallel, steps)
        instance = cls(
            name=str(name),
            variables=loads,
            activations=whole_bytes(activations, "activations", (n + 1,)),
            **{key: whole_bytes(value, key, (n,)) for key, value in columns.items()},
            skips=validate.skips(skips, n),
            chip=validate.chip(chip, facts),
            microbatch=chosen,
            global_batch=batch,
            data_parallel=data_parallel,
            modes=validate.choices(modes, Mode, "modes"),
            training=bool(training),
            policies=validate.choices(policies, Policy, "policies"),
            recomputations=integer(recomputations, "recomputations"),
            prefetch=bool(prefetch),
            fixed_boundaries=validate.boundaries(fixed_boundaries),
            remote_memory=None
            if remote_memory is None
            else integer(in_bytes(remote_memory, "remote_memory"), "remote_memory"),
            graphs=None if graphs is None else integer(graphs, "graphs"),
            layer_names=names(layer_names, "layer_names", n, "layer"),
            objective=member(objective, Objective, "objective"),
            source=source,
        )
        validate.instance(instance)
        return instance

    @classmethod
    def from_profile(
        cls,
        profile: ModelProfile,
        chip: Chip | Cluster | str,
        *,
        name: str | None = None,
        **options: Any,
    ) -> PhaseSchedule:
        """Build an instance from a model profile and a chip.

        - All outputs of a layer become one tensor with their bytes together; a layer that reads one
          of them reads all.
        - Everything that comes from the host is x_0.
        - Parameters become variables, bytes of the category ``optimiser state`` become state, and
          stashes other than the inputs of the layer become tapes.
        - Other bytes are left out: the problem counts gradients itself, and the bytes of code are
          not known per phase.

        Parameters
        ----------
        profile : ModelProfile
        chip : Chip, Cluster or str
            Of a cluster (an object or a name of the catalog), the first device with its speed is
            used, see :mod:`.chips`.
        name : str, optional
            That of the profile when absent.
        **options
            For :meth:`from_arrays` (training, microbatch, ...); they may replace what is derived.
            Training is by default what the profile says of its bytes.
        """
        derived = validate.derived(profile.together())
        options["training"] = profile.trains(options.get("training"))
        if not isinstance(chip, Chip):
            chip = clusters.cluster(chip)
            speed = float(chip.devices[0].speed)
            for passes in ("forward", "backward"):
                derived[passes] = whole_cycles(np.asarray(derived[passes]), speed)
            chip = of_device(chip)
        title = profile.name or "phases" if name is None else name
        return cls.from_arrays(**{**derived, "chip": chip, "name": title, **options})

    def replace(self, **changes: Any) -> PhaseSchedule:
        """Return a copy with some fields changed, validated anew as by :meth:`from_arrays`.

        Fields of the chip (``memory``, ``tiles``, ``remote_bandwidth``, ...) and ``steps`` may be
        given by themselves.

        Raises
        ------
        InputError
            For an unknown field or a value that does not fit.
        """
        parts = {name: changes.pop(name) for name in CHIP if name in changes}
        if parts:
            changes["chip"] = msgspec.structs.replace(changes.get("chip", self.chip), **parts)
        if "steps" in changes:
            changes = {"global_batch": None, **changes}
        return super().replace(**changes)
