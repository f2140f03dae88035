"""Errors per attention call along the exact trajectory, and clips generated under each variant."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._attention import attention
from .metrics import psnr, rel_l2, ssim
from .variants import Variant
from .videodit import ClipShape, VideoModel

#: The clip that others are compared with: PyTorch's attention in the model's 16 bits.
REFERENCE = "16 bit"
#: The same with the attention in float32: the distance of two exact kernels.
FLOOR = "float32"


@dataclass
class Call:
    """The error of one attention call."""

    label: int
    step: int
    layer: int
    error: float


@dataclass
class Result:
    """What was measured of one variant."""

    name: str
    calls: list[Call] = field(default_factory=list)
    psnr: list[float] = field(default_factory=list)
    ssim: list[float] = field(default_factory=list)
    seconds: float = 0.0
    clips: dict[int, Tensor] = field(default_factory=dict)

    def summary(self) -> dict[str, Any]:
        """Mean and spread of everything, for the table and for JSON."""
        errors = [call.error for call in self.calls]
        return {
            "variant": self.name,
            "rel_l2_mean": statistics.fmean(errors) if errors else None,
            "rel_l2_max": max(errors, default=None),
            "calls": len(errors),
            "psnr": spread(self.psnr),
            "ssim": spread(self.ssim),
            "seconds": self.seconds,
        }


def spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {
        "mean": statistics.fmean(values),
        "stdev": statistics.stdev(values) if len(values) > 1 else 0.0,
        "min": min(values),
        "max": max(values),
        "clips": len(values),
    }


def exact(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def exact_float32(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with torch.autocast(q.device.type, enabled=False):
        return F.scaled_dot_product_attention(q.float(), k.float(), v.float())


def low_bit(q: Tensor, k: Tensor, v: Tensor, backend: str, **how: Any) -> Tensor:
    """vcattn's output on q's device, wherever the backend computes it."""
    if backend == "cpu" and q.device.type != "cpu":
        found: Tensor = attention(q.cpu(), k.cpu(), v.cpu(), backend=backend, **how)
        return found.to(q.device)
    return attention(q, k, v, backend=backend, **how)


def probe_calls(
    model: VideoModel,
    shape: ClipShape,
    label: int,
    results: dict[str, Result],
    probe_steps: Iterable[int],
    backend: str,
    progress: Callable[[str], None],
) -> None:
    """Runs the exact clip and, beside each of its attention calls, every variant on the same
    q, k and v; keeps the errors of ``probe_steps`` and lets schedules group when they are due."""
    wanted = set(probe_steps)
    schedules = {name: Variant(name).schedule(shape.steps) for name in results}
    layer = 0

    def on_step(index: int) -> None:
        nonlocal layer
        layer = 0
        progress(f"label {label}: per-call error, step {index + 1} of {shape.steps}")
        for schedule in schedules.values():
            schedule.step(index)

    def probed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        nonlocal layer
        expected: Tensor | None = None
        for name, schedule in schedules.items():
            choice = schedule.choose_for(layer, layer)
            groups = choice.state is not None and choice.state.action[0]
            if schedule.current_step not in wanted and not groups:
                continue
            # float32 queries only keep the output from being rounded to 16 bits.
            with torch.autocast(q.device.type, enabled=False):
                found = low_bit(q.float(), k, v, backend, recipe=choice.recipe, state=choice.state)
            if schedule.current_step in wanted:
                expected = exact_float32(q, k, v) if expected is None else expected
                call = Call(label, schedule.current_step, layer, rel_l2(found, expected))
                results[name].calls.append(call)
        layer += 1
        return exact(q, k, v)

    model.generate(shape, label, probed, on_step)


def generate_clips(
    model: VideoModel,
    shape: ClipShape,
    label: int,
    results: dict[str, Result],
    backend: str,
    progress: Callable[[str], None],
) -> dict[str, Tensor]:
    """The clip of a label under every variant, measured against the 16-bit clip; returns the
    16-bit and the float32 clip."""

    def announce(name: str) -> Callable[[int], None]:
        return lambda index: progress(f"label {label}: {name}, step {index + 1} of {shape.steps}")

    reference = model.generate(shape, label, exact, announce(REFERENCE))
    floor = model.generate(
        shape, label, lambda q, k, v: exact_float32(q, k, v).to(q.dtype), announce(FLOOR)
    )
    for name, result in results.items():
        schedule, tell = Variant(name).schedule(shape.steps), announce(name)

        def on_step(index: int, schedule: Any = schedule, tell: Any = tell) -> None:
            schedule.step(index)
            tell(index)

        started = time.perf_counter()
        with schedule:
            clip = model.generate(shape, label, lambda q, k, v: low_bit(q, k, v, backend), on_step)
        result.seconds += time.perf_counter() - started
        result.psnr.append(psnr(clip, reference))
        result.ssim.append(ssim(clip, reference))
        result.clips[label] = clip
    return {REFERENCE: reference, FLOOR: floor}
