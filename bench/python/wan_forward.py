"""One forward of a Wan2.2-A14B-shaped transformer with random weights: attention backends compared.

Interleaved runs, medians; the Amdahl bound from a forward whose self-attention returns v. Prints
one JSON object. Needs a GPU, diffusers and about 60 GB of its memory.
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


def add_identity_backend() -> None:
    """Self-attention that costs nothing; cross-attention stays."""
    native = dispatch._AttentionBackendRegistry._backends[dispatch.AttentionBackendName.NATIVE]

    def identity(query, key, value, attn_mask=None, scale=None, _parallel_config=None):
        return value if query.shape == value.shape else native(query, key, value, attn_mask)

    backend = extend_enum(dispatch.AttentionBackendName, "identity")
    dispatch._AttentionBackendRegistry.register(backend)(identity)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--latents", type=int, nargs=3, default=(21, 90, 160), metavar="N")
    parser.add_argument("--runs", type=int, default=3)
    backends = ["native", "_native_cudnn", "vcattn_vc8", "vcattn_vc8_fast"]
    parser.add_argument("--backends", nargs="+", default=backends)
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
    names = [*options.backends, "identity"]
    times: dict[str, list[float]] = {name: [] for name in names}
    outputs: dict[str, torch.Tensor] = {}
    for run in range(options.runs + 1):  # the first warms up
        for name in names:
            model.set_attention_backend(name)
            torch.cuda.synchronize()
            started = time.perf_counter()
            with torch.inference_mode():
                outputs[name] = model(**inputs, return_dict=False)[0]
            torch.cuda.synchronize()
            if run:
                times[name].append(time.perf_counter() - started)
    frames, height, width = options.latents
    reference = outputs[names[0]].float()
    native = statistics.median(times[names[0]])
    bound = native / statistics.median(times["identity"])
    rows = [
        {
            "backend": name,
            "seconds_median": statistics.median(times[name]),
            "seconds": times[name],
            "speedup": native / statistics.median(times[name]),
            "rel_l2_to_first": float((outputs[name].float() - reference).norm() / reference.norm()),
        }
        for name in names
    ]
    facts = {
        "tokens": frames * (height // 2) * (width // 2), "layers": options.layers,
        "device": torch.cuda.get_device_name(), "torch": torch.__version__,
        "amdahl_bound": bound, "attention_share": 1 - 1 / bound,
        "calls": vcattn.backend_in_use(), "results": rows,
    }  # fmt: skip
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
