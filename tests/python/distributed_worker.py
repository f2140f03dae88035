"""What each of two ranks runs for test_distributed.py; rank 0 saves what came out."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from unittest import mock

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from vcattn.integrations import diffusers as on_diffusers
from vcattn.schedule import Schedule

#: "cpu" (gloo) or "cuda" (NCCL, one device a rank).
DEVICE = sys.argv[4] if len(sys.argv) > 4 else "cpu"

#: name -> (engine, configuration, tokens of each rank, heads)
CASES = {
    "diffusers ring": ("diffusers", {"ring_degree": 2}, (150, 150), 2),
    "diffusers ring, uneven": (
        "diffusers", {"ring_degree": 2, "ring_anything": True}, (201, 77), 2,
    ),
    "diffusers ring, empty shard": (
        "diffusers", {"ring_degree": 2, "ring_anything": True}, (130, 0), 2,
    ),
    "diffusers ulysses": ("diffusers", {"ulysses_degree": 2}, (150, 150), 4),
    "diffusers ulysses, uneven": (
        "diffusers", {"ulysses_degree": 2, "ulysses_anything": True}, (201, 77), 3,
    ),
    "diffusers ulysses, empty shard": (
        "diffusers", {"ulysses_degree": 2, "ulysses_anything": True}, (130, 0), 4,
    ),
    "diffusers ulysses in 8 bits": (
        "diffusers", {"ulysses_degree": 2, "backend": "vcattn_ulysses8"}, (150, 150), 4,
    ),
    "cache-dit ring": ("cache_dit", {"ring_degree": 2}, (150, 150), 2),
    "cache-dit ulysses": ("cache_dit", {"ulysses_degree": 2}, (150, 150), 4),
}  # fmt: skip


def whole(name: str) -> list[torch.Tensor]:
    """q, k, v (1, S, H, 64) of a case; the keys' mean drifts along the sequence, so that shards
    have different means and an LSE that forgets its own shows."""
    _, _, tokens, heads = CASES[name]
    generator = torch.Generator().manual_seed(len(name))
    q, k, v = (torch.randn(1, sum(tokens), heads, 64, generator=generator) for _ in range(3))
    drift = torch.linspace(-2, 2, sum(tokens))[None, :, None, None] * torch.ones(64) / 4
    return [q, k + drift, v]


def mesh_of(options: dict):
    degrees = (options.get("ring_degree", 1), options.get("ulysses_degree", 1))
    return init_device_mesh(DEVICE, degrees, mesh_dim_names=("ring", "ulysses"))


def call(engine: str, options: dict, rank: int):
    """The engine's own context-parallel dispatch with vcattn's backend."""
    mesh = mesh_of(options)
    if engine == "cache_dit":
        from cache_dit.attention.backends import register as registry
        from cache_dit.distributed.core import _ContextParallelConfig
        from vcattn.integrations import cache_dit as on_cache_dit

        on_cache_dit.register()
        config = _ContextParallelConfig(**options)
        config.setup(rank, 2, torch.device(DEVICE), mesh)
        backend = registry._AttnBackendRegistry.get_backend("vcattn_vc8")
        return lambda *qkv: backend(*qkv, _cp_config=config)
    from diffusers.models._modeling_parallel import ContextParallelConfig
    from diffusers.models.attention_dispatch import dispatch_attention_fn

    options = dict(options)
    backend = options.pop("backend", "vcattn_vc8")
    config = ContextParallelConfig(**options)
    config.setup(rank, 2, torch.device(DEVICE), mesh)
    parallel = SimpleNamespace(context_parallel_config=config)
    return lambda *qkv: dispatch_attention_fn(*qkv, backend=backend, parallel_config=parallel)


def model_outputs(rank: int) -> dict[str, torch.Tensor]:
    """A whole Wan transformer under ring and Ulysses, two steps of a schedule."""
    from diffusers import ContextParallelConfig
    from test_diffusers import wan

    outputs = {}
    for name, degrees in {"ring": {"ring_degree": 2}, "ulysses": {"ulysses_degree": 2}}.items():
        model, inputs = wan()
        model, inputs = model.to(DEVICE), {key: x.to(DEVICE) for key, x in inputs.items()}
        model.set_attention_backend("vcattn")
        mesh = mesh_of(degrees)
        # diffusers divides by the number of accelerators to name one it then does not use.
        with mock.patch.object(torch.accelerator, "device_count", lambda: 2):
            model.enable_parallelism(config=ContextParallelConfig(mesh=mesh, **degrees))
        with torch.no_grad(), Schedule(steps=2, layers=2, short="vcattn") as plan:
            for _ in plan.track(range(2)):
                outputs[f"wan {name}"] = model(**inputs, return_dict=False)[0].cpu()
            expected = 4 if name == "ring" else 2  # two shards a layer
            assert len(plan.states) == expected, plan.states
    return outputs


def main(rank: int, store: str, results: str) -> None:
    if DEVICE == "cuda":
        torch.cuda.set_device(rank)
    backend = {"cpu": "cpu:gloo", "cuda": "cpu:gloo,cuda:nccl"}[DEVICE]
    dist.init_process_group(backend, init_method=f"file://{store}", rank=rank, world_size=2)
    on_diffusers.register()
    outputs = {}
    for name, (engine, options, tokens, _) in CASES.items():
        try:
            attend = call(engine, options, rank)
        except ImportError as error:
            outputs[name] = str(error)
            continue
        shard = [x.split(tokens, 1)[rank].contiguous().to(DEVICE) for x in whole(name)]
        try:
            out = attend(*shard).contiguous()
        except (NotImplementedError, ValueError) as error:  # on both ranks alike
            if engine != "cache_dit" or "triton" not in str(error).lower():
                raise
            outputs[name] = "cache-dit merges its ring by a Triton kernel, which needs a GPU"
            continue
        # Tensors of different sizes: as objects.
        gathered: list = [None, None]
        dist.all_gather_object(gathered, out.cpu())
        outputs[name] = torch.cat(gathered, 1)
    outputs |= model_outputs(rank)
    if rank == 0:
        torch.save(outputs, results)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
