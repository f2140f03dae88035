"""The real diffusers transformers at reduced depth with random weights: vcattn against SDPA."""

from __future__ import annotations

import pytest
import torch
import vcattn
from conftest import rel_l2

diffusers = pytest.importorskip("diffusers")

from diffusers.models import attention_dispatch as dispatch  # noqa: E402
from vcattn import _torch_op  # noqa: E402
from vcattn.integrations.diffusers import register, use_key_lengths  # noqa: E402


@pytest.fixture(autouse=True)
def _registered():
    register()
    yield
    dispatch._AttentionBackendRegistry._active_backend = dispatch.AttentionBackendName.NATIVE


def wan(layers=2, image=False):
    torch.manual_seed(0)
    model = diffusers.WanTransformer3DModel(
        patch_size=(1, 2, 2), num_attention_heads=2, attention_head_dim=64, in_channels=4,
        out_channels=4, text_dim=32, freq_dim=32, ffn_dim=128, num_layers=layers,
        **({"image_dim": 32, "added_kv_proj_dim": 128} if image else {}),
    ).eval()  # fmt: skip
    inputs = {
        "hidden_states": torch.randn(2, 4, 3, 12, 12),
        "timestep": torch.tensor([500, 500]),
        "encoder_hidden_states": torch.randn(2, 20, 32),
    }
    if image:
        inputs["encoder_hidden_states_image"] = torch.randn(2, 8, 32)
    return model, inputs


def hunyuan(valid=(5, 12)):
    torch.manual_seed(0)
    model = diffusers.HunyuanVideo15Transformer3DModel(
        in_channels=4, out_channels=4, num_attention_heads=2, attention_head_dim=64, num_layers=2,
        num_refiner_layers=1, text_embed_dim=32, text_embed_2_dim=24, image_embed_dim=16,
        rope_axes_dim=(16, 24, 24), target_size=32,
    ).eval()  # fmt: skip
    mask = torch.zeros(len(valid), 12, dtype=torch.long)
    for row, count in zip(mask, valid, strict=True):
        row[:count] = 1
    batch = len(valid)
    inputs = {
        "hidden_states": torch.randn(batch, 4, 2, 9, 9),
        "timestep": torch.full((batch,), 500.0),
        "encoder_hidden_states": torch.randn(batch, 12, 32),
        "encoder_attention_mask": mask,
        "encoder_hidden_states_2": torch.randn(batch, 6, 24),
        "encoder_attention_mask_2": torch.ones(batch, 6, dtype=torch.long),
        "image_embeds": torch.zeros(batch, 3, 16),
    }
    return model, inputs


def minimax():
    torch.manual_seed(0)
    model = diffusers.MiniMaxH3Transformer3DModel(
        num_attention_heads=2, attention_head_dim=64, hidden_size=64, num_layers=2,
        num_refiner_layers=1, ffn_dim=128, in_channels=4, audio_in_channels=8, text_dim=32,
        freq_dim=32, time_embed_hidden_dim=64, time_embed_dim=32, rope_freq_dim=8,
    ).eval()  # fmt: skip
    video, audio, text = 90, 10, 15
    total = video + audio + text
    order = torch.arange(total)
    tags = torch.cat([torch.full((text,), 0), torch.full((audio,), 2), torch.full((video,), 1)])
    inputs = {
        "hidden_states": torch.randn(1, video, 16),
        "audio_hidden_states": torch.randn(1, audio, 8),
        "encoder_hidden_states": torch.randn(1, text, 32),
        "timestep": torch.tensor([0.5]),
        "timestep_indices": torch.zeros(total, dtype=torch.long),
        "token_tags": tags,
        "position_ids": order[:, None].expand(-1, 3).float(),
        "video_indices": order[text + audio :],
        "audio_indices": order[text : text + audio],
        "text_indices": order[:text],
    }
    return model, inputs


MODELS = {
    "wan": wan,
    "wan-i2v": lambda: wan(image=True),
    "hunyuan-1.5": hunyuan,
    "minimax-h3": minimax,
}


@torch.no_grad()
def forward(model, inputs, backend):
    model.set_attention_backend(backend)
    return model(**inputs, return_dict=False)[0]


@pytest.mark.parametrize("name", MODELS)
def test_models_match_their_sdpa_forward(name):
    model, inputs = MODELS[name]()
    expected = forward(model, inputs, "native")
    before = dict(vcattn.backend_in_use())
    exact = forward(model, inputs, "vcattn_exact")
    low = forward(model, inputs, "vcattn")
    used = vcattn.backend_in_use()
    assert used["exact"] > before.get("exact", 0) and used["vc8"] > before.get("vc8", 0)
    assert rel_l2(exact, expected) < 1e-4
    assert 0 < rel_l2(low, expected) < 0.05


def test_names_are_known_and_registration_repeats():
    assert register() == register()
    assert {"vcattn", "vcattn_vc4", "vcattn_vc8_fast"} <= {
        member.value for member in dispatch.AttentionBackendName
    }
    with dispatch.attention_backend("vcattn"):
        assert dispatch._AttentionBackendRegistry.get_active_backend()[0].value == "vcattn"
    with pytest.raises(ValueError):
        wan()[0].set_attention_backend("vcattn_vc9")


def test_one_module_alone_can_use_it():
    model, inputs = wan()
    forward(model, inputs, "native")
    model.blocks[0].attn1.set_attention_backend("vcattn")
    before = vcattn.backend_in_use().get("vc8", 0)
    with torch.no_grad():
        model(**inputs, return_dict=False)
    assert vcattn.backend_in_use()["vc8"] == before + 1


def test_cross_attention_stays_in_torch_under_a_schedule():
    model, inputs = wan()
    before = vcattn.backend_in_use()
    with vcattn.Schedule(steps=1):
        forward(model, inputs, "vcattn")
    after = vcattn.backend_in_use()
    assert after["vc8"] - before.get("vc8", 0) == 2  # self-attention over 108 tokens
    assert after["torch: by choice"] - before.get("torch: by choice", 0) == 2  # 20 text tokens


def test_hunyuan_key_lengths_equal_the_dense_mask_and_unpadded_calls():
    model, inputs = hunyuan()
    expected = forward(model, inputs, "native")
    assert use_key_lengths(model) == 2 and use_key_lengths(model) == 0
    assert torch.equal(forward(model, inputs, "native"), expected)  # other backends: unchanged
    before = vcattn.backend_in_use().get("exact", 0)
    found = forward(model, inputs, "vcattn_exact")
    assert vcattn.backend_in_use()["exact"] == before + 2
    assert rel_l2(found, expected) < 1e-4
    for b, valid in enumerate((5, 12)):
        alone = {key: value[b : b + 1] for key, value in inputs.items()}
        alone["encoder_hidden_states"] = alone["encoder_hidden_states"][:, :valid]
        alone["encoder_attention_mask"] = alone["encoder_attention_mask"][:, :valid]
        assert rel_l2(forward(model, alone, "vcattn_exact"), found[b : b + 1]) < 1e-4


def test_schedule_over_a_denoising_loop_with_guidance():
    model, inputs = wan(layers=3)
    inputs["hidden_states"] = torch.randn(2, 4, 3, 24, 24)
    model.set_attention_backend("vcattn")
    uncond = {**inputs, "encoder_hidden_states": torch.zeros_like(inputs["encoder_hidden_states"])}
    rules = [vcattn.Rule("exact", layers=[-1]), vcattn.Rule("torch", steps=[0])]
    before = vcattn.backend_in_use()
    with torch.no_grad(), vcattn.Schedule(steps=6, layers=3, rules=rules) as plan:
        for index in range(6):
            for branch in (inputs, uncond):
                model(**branch, return_dict=False)
            plan.callback(None, index, None, {})
        states = plan.states
    assert set(states) == set(range(6))  # three layers, two branches
    assert sorted(states[0].permutation(entry=1, head=1)) == list(range(432))
    assert states[1].permutation() != states[4].permutation()
    assert states[2].permutation() == []  # exact, by the rule
    ran = {name: count - before.get(name, 0) for name, count in vcattn.backend_in_use().items()}
    # Two branches; the last of three layers is exact, the others are vc8 but in the first step;
    # three cross-attentions.
    assert (ran["exact"], ran["vc8"], ran["torch: by choice"]) == (
        2 * 6,
        2 * 2 * 5,
        2 * (2 + 3 * 6),
    )


def test_compiles_without_graph_breaks():
    model, inputs = wan(layers=1)
    model.set_attention_backend("vcattn_vc8")
    with torch.no_grad():
        expected = model(**inputs, return_dict=False)[0]
        model.compile_repeated_blocks(fullgraph=True, backend="aot_eager")
        found = model(**inputs, return_dict=False)[0]
    assert rel_l2(found, expected) < 1e-5


def test_gradients_fall_back_visibly():
    model, inputs = wan(layers=1)
    model.set_attention_backend("vcattn_vc8")
    _torch_op._warned.clear()
    with pytest.warns(UserWarning, match="gradients"):
        loss = model(**inputs, return_dict=False)[0].sum()
    loss.backward()
    assert model.blocks[0].attn1.to_q.weight.grad.abs().sum() > 0


def test_dropout_is_refused():
    x = torch.randn(1, 8, 2, 32)
    with pytest.raises(NotImplementedError, match="dropout"):
        dispatch.dispatch_attention_fn(x, x, x, dropout_p=0.1, backend="vcattn")


@pytest.mark.parametrize("kind", ["keys", "bool", "additive", "causal", "gqa"])
def test_dispatched_arguments_are_honoured(kind):
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, 60, 4, 32) for _ in range(3))
    visible = torch.rand(2, 1, 60, 60) < 0.7
    given = {
        "keys": {"attn_mask": torch.arange(60) < torch.tensor([[60], [11]])},
        "bool": {"attn_mask": visible},
        "additive": {"attn_mask": torch.randn(2, 4, 60, 60)},
        "causal": {"is_causal": True},
        "gqa": {"enable_gqa": True},
    }[kind]
    if kind == "gqa":
        k, v = k[:, :, :2], v[:, :, :2]
    found = dispatch.dispatch_attention_fn(q, k, v, scale=0.2, backend="vcattn_vc8", **given)
    # Not diffusers' own backend: cache-dit, once loaded, replaces it by one without key masks.
    if kind == "keys":
        given = {"attn_mask": given["attn_mask"][:, None, None]}
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    expected = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, scale=0.2, **given
    ).transpose(1, 2)
    assert found.shape == expected.shape and 0 < rel_l2(found, expected) <= 0.09
