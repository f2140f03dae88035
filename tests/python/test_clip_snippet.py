"""The ten lines of README and docs/integrations.md, run as they stand on a tiny Wan pipeline."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import vcattn
from conftest import rel_l2

pytest.importorskip("transformers")
diffusers = pytest.importorskip("diffusers")

ROOT = Path(__file__).parents[2]
STEPS, LAYERS = 40, 2


def snippet(file: str) -> str:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / file).read_text(), re.S)
    (found,) = (block for block in blocks if "WanPipeline" in block)
    return found


class TinyPipeline(diffusers.WanPipeline):
    """The real pipeline, scheduler and classes; small models, a small clip, made-up text."""

    def __call__(self, prompt, **options):
        assert prompt == "a prompt"
        generator = torch.Generator().manual_seed(3)
        small = {"height": 32, "width": 48, "num_frames": 5, "generator": generator}
        return super().__call__(prompt, **small, **options)

    def encode_prompt(self, prompt, *arguments, **options):
        return torch.ones(1, 7, 32), torch.zeros(1, 7, 32)

    def to(self, device):
        assert device == "cuda"
        return self


def tiny_pipeline() -> TinyPipeline:
    torch.manual_seed(0)
    shape = {"num_attention_heads": 2, "attention_head_dim": 32, "num_layers": LAYERS,
             "text_dim": 32, "ffn_dim": 64, "freq_dim": 32, "rope_max_seq_len": 32}  # fmt: skip
    experts = [diffusers.WanTransformer3DModel(**shape).eval() for _ in range(2)]
    vae = diffusers.AutoencoderKLWan(base_dim=4, dim_mult=[1, 1, 1, 1], num_res_blocks=1)
    return TinyPipeline(
        tokenizer=None, text_encoder=None, vae=vae.eval(), transformer=experts[0],
        transformer_2=experts[1], boundary_ratio=0.875,
        scheduler=diffusers.UniPCMultistepScheduler(
            prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0
        ),
    )  # fmt: skip


def test_readme_and_docs_show_the_same_lines():
    assert snippet("README.md") == snippet("docs/integrations.md")
    assert len(snippet("README.md").strip().splitlines()) <= 12


def test_the_snippet_makes_the_clip_of_torch_s_attention(monkeypatch):
    pipe = tiny_pipeline()
    given = {}

    def from_pretrained(model, **options):
        given.update(options, model=model)
        return pipe

    monkeypatch.setattr(diffusers.WanPipeline, "from_pretrained", from_pretrained)
    before = vcattn.backend_in_use().get("vc8", 0)
    scope = {"MODEL": "a model", "PROMPT": "a prompt"}
    exec(snippet("README.md"), scope)
    assert given == {"model": "a model", "torch_dtype": torch.bfloat16}
    # Every self-attention of two guidance passes, by both experts.
    assert vcattn.backend_in_use()["vc8"] - before == STEPS * LAYERS * 2
    states, calls = scope["schedule"].states, range(LAYERS * 2)
    # The second expert's layers group for themselves from its first step on.
    assert set(states) == {*calls, *((1, call) for call in calls)}
    assert all(states[1, call].permutation() for call in calls)
    for expert in (pipe.transformer, pipe.transformer_2):
        expert.set_attention_backend("native")
    expected = pipe("a prompt", num_inference_steps=STEPS).frames[0]
    found = scope["clip"].frames[0]
    assert found.shape == expected.shape == (5, 32, 48, 3)
    assert np.isfinite(found).all() and 0 < rel_l2(found, expected) < 0.02
