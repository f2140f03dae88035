"""One forward of a Wan2.2-A14B-shaped transformer with random weights: attention backends compared.

A row is a diffusers backend, or a moment of vcattn's schedule: "group" clusters and takes means
out (every fourth step of the first quarter), "means" reuses the grouping, "later" is every step
after the first quarter. Interleaved runs, medians; the Amdahl bound comes from a forward whose
self-attention returns v. Prints one JSON object. Needs a GPU, diffusers and about 60 GB of its
memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time

import torch
import vcattn
from diffusers import WanTransformer3DModel
from diffusers.models import attention_dispatch as dispatch
from vcattn.integrations._engine import extend_enum
from vcattn.integrations.diffusers import register

STEPS = 40
MOMENTS = {"group": 0, "means": 1, "later": STEPS - 1}


def add_identity_backend() -> None:
    """Self-attention that costs nothing; cross-attention stays."""
    native = dispatch._AttentionBackendRegistry._backends[dispatch.AttentionBackendName.NATIVE]

    def identity(query, key, value, attn_mask=None, scale=None, _parallel_config=None):
        return value if query.shape == value.shape else native(query, key, value, attn_mask)

    backend = extend_enum(dispatch.AttentionBackendName, "identity")
    dispatch._AttentionBackendRegistry.register(backend)(identity)


class Forward:
    """The model under one row's backend and moment."""

    def __init__(self, model: torch.nn.Module, inputs: dict, row: str, recipe: str) -> None:
        self.model, self.inputs, self.row = model, inputs, row
        self.schedule = vcattn.Schedule(STEPS, recipe=recipe) if row in MOMENTS else None

    def timed(self) -> tuple[torch.Tensor, float]:
        """The output and the seconds it took."""
        if self.schedule is None:
            self.model.set_attention_backend(self.row)
            return self._forward()
        self.model.set_attention_backend("vcattn")
        with self.schedule:  # forgets groupings: "group" makes them anew
            if self.row != "group":
                self._forward()  # what "means" and "later" start from
            self.schedule.step(MOMENTS[self.row])
            return self._forward()

    def _forward(self) -> tuple[torch.Tensor, float]:
        torch.cuda.synchronize()
        started = time.perf_counter()
        with torch.inference_mode():
            out = self.model(**self.inputs, return_dict=False)[0]
        torch.cuda.synchronize()
        return out, time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--latents", type=int, nargs=3, default=(21, 90, 160), metavar="N")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--recipe", default="vc8", help="of the schedule's rows")
    rows = ["native", "_native_cudnn", "group", "means", "later", "identity"]
    parser.add_argument("--rows", nargs="+", default=rows, help="the first is the reference")
    options = parser.parse_args()
    register()
    add_identity_backend()
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = WanTransformer3DModel(num_layers=options.layers).eval()
        inputs = {
            "hidden_states": torch.randn(1, 16, *options.latents),
            "timestep": torch.tensor([500]),
            "encoder_hidden_states": torch.randn(1, 512, 4096),
        }
    torch.set_default_dtype(torch.float32)
    forwards = {row: Forward(model, inputs, row, options.recipe) for row in options.rows}
    times: dict[str, list[float]] = {row: [] for row in forwards}
    outputs: dict[str, torch.Tensor] = {}
    for run in range(options.runs + 1):  # the first warms up
        for row, forward in forwards.items():
            outputs[row], seconds = forward.timed()
            if run:
                times[row].append(seconds)
    medians = {row: statistics.median(values) for row, values in times.items()}
    first = options.rows[0]
    reference = outputs[first].float()
    frames, height, width = options.latents
    facts = {
        "tokens": frames * (height // 2) * (width // 2),
        "layers": options.layers,
        "recipe": options.recipe,
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "calls": vcattn.backend_in_use(),
        "results": [
            {
                "row": row,
                "seconds_median": medians[row],
                "seconds": times[row],
                "speedup": medians[first] / medians[row],
                "rel_l2": float((outputs[row].float() - reference).norm() / reference.norm()),
            }
            for row in options.rows
        ],
    }
    if "identity" in medians:
        facts["amdahl_bound"] = medians[first] / medians["identity"]
        facts["attention_share"] = 1 - medians["identity"] / medians[first]
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
