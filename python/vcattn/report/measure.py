"""Errors per attention call along the exact trajectory, and clips generated under each variant."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .._attention import attention, can_use
from .metrics import psnr, rel_l2, ssim
from .results import FLOOR, REFERENCE, Call, Clip, Result
from .variants import Variant
from .videodit import Attention, ClipShape, VideoModel

#: Is told what runs, at every denoising step; may raise to give the piece up.
Progress = Callable[[str], None]


def exact(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


def exact_float32(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    with torch.autocast(q.device.type, enabled=False):
        return F.scaled_dot_product_attention(q.float(), k.float(), v.float())


def exact_rounded(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return exact_float32(q, k, v).to(q.dtype)


def low_bit(result: Result, q: Tensor, k: Tensor, v: Tensor, backend: str, **how: Any) -> Tensor:
    """vcattn's output on q's device, wherever a backend computes it: under "auto" on that device
    if it can, else on the CPU from copies."""
    recipe = Variant(result.name).recipe
    if backend == "auto":
        backend = "cuda" if q.is_cuda and can_use(q, k, v, recipe=recipe) else "cpu"
    result.backends.add(backend)
    if backend == "cpu" and q.is_cuda:
        q, k, v = q.cpu(), k.cpu(), v.cpu()
        return attention(q, k, v, recipe=recipe, backend=backend, **how).cuda()
    return attention(q, k, v, recipe=recipe, backend=backend, **how)


class Measurement:
    """What the pieces of one report share. Pieces may run in several threads."""

    def __init__(self, model: VideoModel, shape: ClipShape, backend: str) -> None:
        self.model, self.shape, self.backend = model, shape, backend
        self.exact_clips: dict[int, dict[str, Tensor]] = {}
        self._making: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)

    def probe_calls(
        self, label: int, results: Iterable[Result], probe_steps: Iterable[int], progress: Progress
    ) -> None:
        """Runs the exact clip and, beside each of its attention calls, every variant on the same
        q, k and v; adds the errors of ``probe_steps``. Schedules group when they are due."""
        wanted = set(probe_steps)
        variants = [(result, Variant(result.name).schedule(self.shape.steps)) for result in results]
        found: list[tuple[Result, Call]] = []
        layer = 0

        def on_step(index: int) -> None:
            nonlocal layer
            layer = 0
            progress(f"label {label}: per-call error, step {index + 1} of {self.shape.steps}")
            for _, schedule in variants:
                schedule.step(index)

        def probed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            nonlocal layer
            expected: Tensor | None = None
            for result, schedule in variants:
                step, state = schedule.current_step, schedule.choose_for(layer, layer).state
                groups = state is not None and state.action[0]
                if step not in wanted and not groups:
                    continue
                # float32 queries only keep the output from being rounded to 16 bits.
                with torch.autocast(q.device.type, enabled=False):
                    out = low_bit(result, q.float(), k, v, self.backend, state=state)
                if step in wanted:
                    expected = exact_float32(q, k, v) if expected is None else expected
                    found.append((result, Call(label, step, layer, rel_l2(out, expected))))
            layer += 1
            return exact(q, k, v)

        self.model.generate(self.shape, label, probed, on_step)
        for result, call in found:
            result.calls.append(call)

    def generate_clip(self, label: int, result: Result, progress: Progress) -> None:
        """Adds a variant's clip, measured against the 16-bit clip."""
        reference = self._exact(label, progress)[REFERENCE]
        schedule = Variant(result.name).schedule(self.shape.steps)

        def on_step(index: int) -> None:
            progress(f"label {label}: {result.name}, step {index + 1} of {self.shape.steps}")
            schedule.step(index)

        started = time.perf_counter()
        with schedule:
            clip = self.model.generate(
                self.shape, label, lambda q, k, v: low_bit(result, q, k, v, self.backend), on_step
            )
        seconds = time.perf_counter() - started
        result.clips.append(Clip(label, psnr(clip, reference), ssim(clip, reference), seconds))
        result.frames[label] = clip

    def add_floor(self, label: int, floor: Result, progress: Progress) -> None:
        """Adds the float32 clip, measured against the 16-bit clip."""
        clips = self._exact(label, progress)
        pair = clips[FLOOR], clips[REFERENCE]
        floor.clips.append(Clip(label, psnr(*pair), ssim(*pair), 0.0))

    def _exact(self, label: int, progress: Progress) -> dict[str, Tensor]:
        """The 16-bit and the float32 clip, made once."""
        with self._making[label]:
            if label not in self.exact_clips:
                kernels: dict[str, Attention] = {REFERENCE: exact, FLOOR: exact_rounded}
                self.exact_clips[label] = {
                    name: self.model.generate(
                        self.shape, label, attend, self._tell(label, name, progress)
                    )
                    for name, attend in kernels.items()
                }
            return self.exact_clips[label]

    def _tell(self, label: int, name: str, progress: Progress) -> Callable[[int], None]:
        steps = self.shape.steps
        return lambda index: progress(f"label {label}: {name}, step {index + 1} of {steps}")
