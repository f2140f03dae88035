"""Two ranks (gloo; NCCL too where two GPUs are) through the engines' own ring and Ulysses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import vcattn
from conftest import T8, reference, rel_l2

pytest.importorskip("diffusers")

from distributed_worker import CASES, whole
from test_diffusers import wan
from vcattn.integrations import quantized_ulysses
from vcattn.integrations._engine import EMPTY_LSE, attend, make_forward_op

CUDA = torch.cuda.device_count() > 1 and vcattn.is_available("cuda")


@pytest.fixture(scope="module", params=["cpu", "cuda"] if CUDA else ["cpu"])
def outputs(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    worker = str(Path(__file__).with_name("distributed_worker.py"))
    arguments = [str(folder / "store"), str(folder / "outputs.pt"), request.param]
    ranks = [
        subprocess.Popen(
            [sys.executable, worker, str(rank), *arguments], stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    texts = [rank.communicate(timeout=300)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(texts)
    return torch.load(folder / "outputs.pt", weights_only=False) | {"device": request.param}


@pytest.mark.parametrize("name", CASES)
def test_two_ranks_equal_one_device(outputs, name):
    found = outputs[name]
    if isinstance(found, str):
        pytest.skip(found)
    q, k, v = whole(name)
    expected, _ = reference(*(x.transpose(1, 2) for x in (q, k, v)))
    alone = vcattn.attention(q, k, v, layout="BSHD", recipe="vc8")
    error = rel_l2(found.transpose(1, 2), expected)
    assert error <= T8 and error <= 1.3 * rel_l2(alone.transpose(1, 2), expected)
    if name in ("diffusers ulysses", "cache-dit ulysses") and outputs["device"] == "cpu":
        assert torch.equal(found, alone)  # each head is whole on one rank
    if name == "diffusers ulysses in 8 bits":
        assert not torch.equal(found, alone) and error <= 1.1 * rel_l2(
            alone.transpose(1, 2), expected
        )


@pytest.mark.parametrize("kind", ["ring", "ulysses"])
def test_wan_under_context_parallelism(outputs, kind):
    model, inputs = wan()
    model.set_attention_backend("native")
    with torch.no_grad():
        expected = model(**inputs, return_dict=False)[0]
    assert rel_l2(outputs[f"wan {kind}"], expected) < 0.05


def merged(parts):
    """diffusers' ring merge, as it is written there."""
    out = lse = None
    for part_out, part_lse in parts:
        part_lse = part_lse.unsqueeze(-1)
        if out is None:
            out, lse = part_out, part_lse
            continue
        out = out - torch.sigmoid(part_lse - lse) * (out - part_out)
        lse = lse - torch.nn.functional.logsigmoid(lse - part_lse)
    return out, lse.squeeze(-1)


@pytest.mark.parametrize("lengths", [(0, 100, 57), (100, 0, 57), (100, 57, 0), (1, 0, 156)])
def test_shards_of_any_length_merge_to_the_whole(lengths):
    torch.manual_seed(1)
    q, k, v = (
        torch.randn(1, 60, 2, 64),
        torch.randn(1, 157, 2, 64) + 0.5,
        torch.randn(1, 157, 2, 64),
    )
    k[:, :80] += 2.0
    forward = make_forward_op("vc8")
    config = type("Config", (), {"ring_degree": 3})
    shards = zip(k.split(lengths, 1), v.split(lengths, 1), strict=True)
    parts = [forward(None, q, *kv, return_lse=True, _cp_config=config) for kv in shards]
    out, lse = merged(parts)
    expected, expected_lse = reference(*(x.transpose(1, 2) for x in (q, k, v)))
    assert rel_l2(out.transpose(1, 2), expected) <= T8
    # One shard at a time is off by up to 0.05; what must not show is the shards' means (above 1).
    assert (lse.transpose(1, 2) - torch.from_numpy(expected_lse)).abs().max() <= 0.1
    assert parts[0][1].shape == (1, 60, 2) and parts[0][1].dtype == torch.float32


def test_lse_is_natural_and_merges_with_torch_s():
    torch.manual_seed(2)
    q, k, v = (torch.randn(1, 64, 2, 64) for _ in range(3))
    low = attend(q, k[:, :30] + 3, v[:, :30], None, 0.0, False, None, False, True, "vc8")
    exact = attend(q, k[:, 30:], v[:, 30:], None, 0.0, False, None, False, True, "torch")
    out, lse = merged([low, exact])
    joined = torch.cat([k[:, :30] + 3, k[:, 30:]], 1)
    expected, expected_lse = reference(*(x.transpose(1, 2) for x in (q, joined, v)))
    assert rel_l2(out.transpose(1, 2), expected) <= T8
    assert (lse.transpose(1, 2) - torch.from_numpy(expected_lse)).abs().max() <= 0.05


def test_empty_shards_have_a_finite_stand_in():
    q, k = torch.randn(1, 5, 2, 64), torch.randn(1, 0, 2, 64)
    out, lse = attend(q, k, k, None, 0.0, False, None, False, True, "vc8")
    assert torch.all(out == 0) and torch.all(lse == EMPTY_LSE)


def test_the_8_bit_wire_format():
    x = torch.randn(2, 5, 3, 128) * torch.logspace(-20, 10, 5)[:, None, None]
    x[0, 0, 0] = 0
    packed = quantized_ulysses.pack(x)
    assert packed.dtype == torch.int8 and packed.shape == (2, 5, 3, 132)  # 0.52 of 16 bits
    back = quantized_ulysses.unpack(packed, torch.float32)
    step = x.abs().amax(-1, keepdim=True) / 127
    assert torch.all((back - x).abs() <= 0.5001 * step) and torch.all(back[0, 0, 0] == 0)
    again = quantized_ulysses.pack(back)
    assert torch.equal(again[..., :-4], packed[..., :-4])  # quantizing again changes nothing
    rotation = quantized_ulysses.hadamard(64, torch.device("cpu"))
    assert torch.allclose(rotation @ rotation.T, torch.eye(64), atol=1e-6)
    assert rotation.abs().allclose(torch.full((64, 64), 1 / 8))
