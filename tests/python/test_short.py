"""Which calls on CUDA tensors go to PyTorch for being short: the rule against recorded times."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import vcattn
from vcattn import _short, schedule

RECORD = Path(__file__).parents[2] / "bench" / "results" / "h200-crossover-device.json"


def picks_torch(q, k, layout="BHSD", float32=False, state=None):
    return _short.faster_in_torch(q, k, layout, float32, state) != ""


def recorded(kind):
    """(row, state, milliseconds of vcattn and of PyTorch): calls of their own, and, for
    self-attention, the average call of a schedule."""
    for row in json.loads(RECORD.read_text())["rows"]:
        ms = row[kind]
        yield row, None, ms["vcattn_alone"], ms["torch_default"]
        if "vcattn" in ms:
            state = vcattn.VSmoothState(steps=40)
            grouping = state.groupings * (ms["vcattn_group"] - ms["vcattn"])
            yield row, state, ms["vcattn"] + grouping, ms["torch_default"]


@pytest.mark.parametrize("kind", ["ms", "device_ms"])
def test_the_rule_picks_the_faster_one_within_a_tenth(kind):
    losses = {}
    for row, state, ours, theirs in recorded(kind):
        if max(ours, theirs) < _short.HOST:
            continue  # the host decides
        q, k = (
            (row["batch"], row[heads], row[tokens], row["dim"])
            for heads, tokens in (("heads", "queries"), ("kv_heads", "keys"))
        )
        torch = picks_torch(q, k, float32=row["dtype"] == "float32", state=state)
        picked = theirs if torch else ours
        losses[q, k, row["dtype"], state is not None] = picked / min(ours, theirs)
    assert len(losses) > 100
    assert {call: loss for call, loss in losses.items() if loss > 1.1} == {}


def test_ends_of_the_range():
    def wan(tokens):
        return (1, 40, tokens, 128)

    scheduled = vcattn.VSmoothState(steps=40)
    assert picks_torch(wan(512), wan(512), state=scheduled)
    assert not picks_torch(wan(75600), wan(75600), state=scheduled)
    assert not picks_torch(wan(75600), wan(75600))
    assert not picks_torch(wan(0), wan(100)) and not picks_torch(wan(100), wan(0))


def test_work_counts_not_tokens_alone():
    few, many = (1, 1, 8192, 128), (4, 40, 8192, 128)
    scheduled = vcattn.VSmoothState(steps=40)
    assert picks_torch(few, few) and not picks_torch(many, many, state=scheduled)
    short_keys = (1, 40, 64, 128)
    assert picks_torch((1, 40, 75600, 128), short_keys)


def test_layouts_name_the_same_call():
    q, k = (2, 24, 5000, 128), (2, 8, 700, 128)
    swapped = [(b, s, h, d) for b, h, s, d in (q, k)]
    assert _short.milliseconds(q, k, "BHSD", False, 0.5) == _short.milliseconds(
        *swapped, "BSHD", False, 0.5
    )


@pytest.mark.parametrize(
    ("steps", "window", "refresh", "share"),
    [
        (40, 0.25, 4, 3 / 40),
        (50, 0.25, 4, 4 / 50),
        (50, 0.28, 1, 14 / 50),  # 0.28 * 50 is a hair above 14 in binary
        (8, 1.0, 1, 1.0),
        (8, 0.0, 4, 0.0),
    ],
)
def test_share_of_calls_that_group(steps, window, refresh, share):
    state = vcattn.VSmoothState(steps, window, refresh)
    assert state.groupings == share
    regrouped, x = 0, np.ones((1, 1, 70, 32), np.float32)
    for step in range(steps):
        state.begin_step(step)
        regrouped += state.action[0]
        vcattn.attention(x, x, x, state=state)
    assert regrouped == round(share * steps)
    assert vcattn.VSmoothState().groupings == 1.0


def test_who_yields():
    def who(queries=9, keys=9):
        return [recipe for recipe in ("", "auto", "vc8") if schedule.yields(recipe, queries, keys)]

    assert who() == who(9, 5) == ["auto"]
    with vcattn.Schedule(steps=2, cross="vc8"):
        assert who() == ["auto"] and who(9, 5) == []  # the recipe of cross-attention is named
    with vcattn.Schedule(steps=2, short="vcattn"):
        assert who() == []
    with pytest.raises(ValueError, match="short"):
        vcattn.Schedule(steps=2, short="cudnn")


def test_the_operator_hands_short_calls_over(monkeypatch):
    """Host tensors that say that they are CUDA's: what follows is PyTorch's on either."""
    torch = pytest.importorskip("torch")
    from vcattn import _torch_op

    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 40, 32).unbind()
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=0.3)
    low = vcattn.sdpa(q, k, v, scale=0.3)
    before = vcattn.backend_in_use().get("torch: it is faster there", 0)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    monkeypatch.setattr(_torch_op, "_is_hopper", lambda device: True)
    _torch_op._warned.clear()
    with pytest.warns(
        UserWarning, match=r"faster there \(estimated .* ms against .* ms .*'vcattn'"
    ):
        out = vcattn.sdpa(q, k, v, scale=0.3)
    assert torch.equal(out, expected) and not torch.equal(out, low)
    assert vcattn.backend_in_use()["torch: it is faster there"] == before + 1
    swapped = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
    call = torch.ops.vcattn.attention
    out = call(*swapped, scale=0.3, recipe="auto", layout="BSHD")[0]
    assert torch.equal(out.transpose(1, 2), expected) and out.is_contiguous()
    with vcattn.Schedule(steps=3) as plan:
        assert torch.equal(vcattn.sdpa(q, k, v, scale=0.3), expected)
        assert set(plan.states) == {0}  # layers are counted all the same
    assert vcattn.backend_in_use()["torch: it is faster there"] == before + 3


@pytest.mark.parametrize("recipe", [None, "vc8"])
def test_every_call_is_counted_once(recipe):
    """A rule of the schedule for a layer whose call names its own recipe, too."""
    torch = pytest.importorskip("torch")
    q, k, v = torch.randn(3, 1, 2, 40, 32, generator=torch.Generator().manual_seed(1)).unbind()
    rules = [vcattn.Rule("torch", layers=[1])]
    with vcattn.Schedule(steps=2, layers=4, rules=rules) as plan:
        for _ in plan.track(range(2)):
            for _ in range(4):
                vcattn.sdpa(q, k, v, recipe=recipe)
            assert plan._calls == 4
        assert set(plan.states) == {0, 2, 3}


def test_the_estimate_follows_the_schedule():
    long, short = (1, 24, 8192, 128), (1, 24, 256, 128)
    assert _short.faster_in_torch(long, long, "BHSD", False, None)
    with vcattn.Schedule(steps=40) as plan:
        assert not _short.faster_in_torch(long, long, "BHSD", False, plan.new_state())
        assert _short.faster_in_torch(short, short, "BHSD", False, plan.new_state())
    wide = (1, 24, 256, 160)
    assert not _short.faster_in_torch(wide, wide, "BHSD", False, None)  # refused, not slower


def test_empty_calls_have_no_lse_nobody_asked_for():
    torch = pytest.importorskip("torch")
    q, k = torch.randn(1, 2, 5, 32), torch.randn(1, 2, 0, 32)
    out, lse = torch.ops.vcattn.attention(q, k, k, recipe="torch")
    assert out.shape == q.shape and not out.any() and lse.numel() == 0
