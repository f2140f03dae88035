"""One forward of a Wan2.2-A14B-shaped transformer with random weights: attention backends compared.

A row is a diffusers backend, or a moment of vcattn's schedule: "group" clusters (every fourth step
of the first quarter), "later" is every other step, which reuses the grouping. The whole model has
40 blocks, which are alike: --layers 4 takes a minute with repeats and memory for little more than
the activations. "identity" is a forward whose self-attention returns v: what remains is the rest of
the model, from which the attention share and the Amdahl bound (attention that takes no time)
follow.

Warms up by forwards of one block, then runs interleaved repeats; every time goes to standard error
as it is measured, one JSON object with medians to standard output. Needs a GPU and diffusers.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
import vcattn
from diffusers import WanTransformer3DModel
from diffusers.models import attention_dispatch as dispatch
from vcattn.integrations._engine import extend_enum
from vcattn.integrations.diffusers import register

STEPS, WINDOW, REFRESH = 40, 10, 4
MOMENTS = {"group": 0, "later": 1}
#: How many of a clip's steps are like each moment.
GROUPINGS = len(range(0, WINDOW, REFRESH))
COUNTS = {"group": GROUPINGS, "later": STEPS - GROUPINGS}
ROWS = ["_native_cudnn", "_native_flash", "identity", *MOMENTS]


def add_identity_backend() -> None:
    """Self-attention that costs nothing; cross-attention stays."""
    native = dispatch._AttentionBackendRegistry._backends[dispatch.AttentionBackendName.NATIVE]

    def identity(query, key, value, attn_mask=None, scale=None, _parallel_config=None):
        return value if query.shape == value.shape else native(query, key, value, attn_mask)

    backend = extend_enum(dispatch.AttentionBackendName, "identity")
    dispatch._AttentionBackendRegistry.register(backend)(identity)


class Bench:
    """The model, and what was measured of each row."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.schedule = vcattn.Schedule(
            STEPS, window=WINDOW / STEPS, refresh=REFRESH, recipe=options.recipe
        )
        torch.manual_seed(0)
        torch.set_default_dtype(torch.bfloat16)
        with torch.device(options.device):
            self.model = WanTransformer3DModel(
                num_layers=options.layers, num_attention_heads=options.heads
            ).eval()
            self.inputs = {
                "hidden_states": torch.randn(1, 16, *options.latents),
                "timestep": torch.tensor([500]),
                "encoder_hidden_states": torch.randn(1, 512, 4096),
            }
        torch.set_default_dtype(torch.float32)
        self.times: dict[str, list[float]] = {row: [] for row in options.rows}
        self.outputs: dict[str, torch.Tensor] = {}
        self.errors: dict[str, str] = {}

    def run(self) -> None:
        """A warm-up and the repeats; no repeat starts that would pass the time limit."""
        with self.schedule:
            with self._one_block():
                for row in self.options.rows:
                    self._measure(row, warm=False)
            started, longest = time.perf_counter(), 0.0
            for index in range(self.options.runs):
                begun = time.perf_counter()
                if index > 0 and begun - started + longest > self.options.limit:
                    say(f"{index} of {self.options.runs} repeats, then the time was up")
                    break
                for row in self.options.rows:
                    self._measure(row, warm=True)
                longest = max(longest, time.perf_counter() - begun)

    @contextlib.contextmanager
    def _one_block(self) -> Iterator[None]:
        """The model with its first block only."""
        blocks = self.model.blocks
        self.model.blocks = blocks[:1]
        try:
            yield
        finally:
            self.model.blocks = blocks

    def _measure(self, row: str, warm: bool) -> None:
        if row in self.errors:
            return
        try:
            out, seconds = self._forward(row)
        except (RuntimeError, ValueError) as error:
            self.errors[row] = str(error).splitlines()[0]
            say(f"{row}: {self.errors[row]}")
            return
        say(f"{row}: {seconds:.3f} s{'' if warm else ' (warm-up, one block)'}")
        if warm:
            self.outputs[row] = out
            self.times[row].append(seconds)

    def _forward(self, row: str) -> tuple[torch.Tensor, float]:
        if row in MOMENTS:
            self.model.set_attention_backend("vcattn")
            if row == "group":
                self.schedule.restart()
            self.schedule.step(MOMENTS[row])
        else:
            self.model.set_attention_backend(row)
        self._synchronize()
        started = time.perf_counter()
        with torch.inference_mode():
            out = self.model(**self.inputs, return_dict=False)[0]
        self._synchronize()
        return out, time.perf_counter() - started

    def _synchronize(self) -> None:
        if self.options.device == "cuda":
            torch.cuda.synchronize()

    def facts(self) -> dict[str, Any]:
        frames, height, width = self.options.latents
        medians = {row: statistics.median(times) for row, times in self.times.items() if times}
        if MOMENTS.keys() <= medians.keys():
            clip = sum(COUNTS[row] * medians[row] for row in MOMENTS)
            medians["schedule"] = clip / STEPS
        facts = {
            "tokens": frames * (height // 2) * (width // 2),
            "layers": self.options.layers,
            "layers_of_the_whole_model": 40,
            "heads": self.options.heads,
            "recipe": self.options.recipe,
            "torch": torch.__version__,
            "calls": vcattn.backend_in_use(),
            "errors": self.errors,
            "seconds": {row: times for row, times in self.times.items() if times},
            "seconds_median": medians,
            "rel_l2_to_the_first_row": self._distances(),
            "against": {
                row: compared(medians, row) for row in self.options.rows
                if row in medians and row not in MOMENTS and row != "identity"
            },
        }  # fmt: skip
        if self.options.device == "cuda":
            facts["device"] = torch.cuda.get_device_name()
            facts["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
        return facts

    def _distances(self) -> dict[str, float]:
        rows = list(self.outputs)
        if not rows:
            return {}
        reference = self.outputs[rows[0]].float()
        return {
            row: float((self.outputs[row].float() - reference).norm() / reference.norm())
            for row in rows[1:]
        }


def compared(medians: dict[str, float], baseline: str) -> dict[str, Any]:
    """vcattn's rows against PyTorch's attention, for whole forwards and for attention alone."""
    whole, rest = medians[baseline], medians.get("identity")
    rows = [row for row in (*MOMENTS, "schedule") if row in medians]
    found: dict[str, Any] = {"speedup": {row: whole / medians[row] for row in rows}}
    if rest is not None:
        bound = whole / rest
        found["attention_share"] = 1 - rest / whole
        found["amdahl_bound"] = bound
        found["speedup_over_bound"] = {row: whole / medians[row] / bound for row in rows}
        found["attention_speedup"] = {
            row: (whole - rest) / (medians[row] - rest) for row in rows if medians[row] > rest
        }
    return found


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=4, help="blocks; the whole model has 40")
    parser.add_argument("--heads", type=int, default=40, help="of 128 channels")
    parser.add_argument("--latents", type=int, nargs=3, default=(21, 90, 160), metavar="N")
    parser.add_argument("--runs", type=int, default=3, help="repeats after the warm-up")
    parser.add_argument("--limit", type=float, default=45.0, help="seconds of measuring")
    parser.add_argument("--recipe", default="vc8", help="of the schedule's rows")
    parser.add_argument("--rows", nargs="+", default=ROWS, help="backends and moments, in order")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    moments = [row for row in options.rows if row in MOMENTS]
    if moments and moments[0] != "group":
        parser.error("--rows: later needs group before it")
    register()
    add_identity_backend()
    say("making the model")
    bench = Bench(options)
    # A time-out ends the measuring, not the report.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        bench.run()
    print(json.dumps(bench.facts(), indent=1))


if __name__ == "__main__":
    main()
