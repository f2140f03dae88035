"""The report: metrics by closed forms, schedules of its variants, a whole run on a toy model."""

from __future__ import annotations

import json
import math
import struct
import sys
import zlib

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from vcattn.report import __main__ as command
from vcattn.report.metrics import psnr, rel_l2, ssim
from vcattn.report.png import png
from vcattn.report.variants import Variant


def test_metrics_have_their_closed_forms():
    a = torch.zeros(1, 2, 16, 16, 3)
    assert psnr(a + 0.02, a) == pytest.approx(10 * math.log10(4 / 0.02**2))
    assert psnr(a, a) == pytest.approx(100)
    assert rel_l2(torch.tensor([3.0, 4.5]), torch.tensor([3.0, 4.0])) == pytest.approx(0.1)
    noise = torch.rand(1, 2, 16, 16, 3) * 2 - 1
    assert ssim(noise, noise) == pytest.approx(1)
    # Constant clips: only the luminance term is left.
    x, y, c1 = 0.2, 0.5, 4e-4
    expected = (2 * x * y + c1) / (x * x + y * y + c1)
    assert ssim(a + x, a + y) == pytest.approx(expected, rel=1e-6)


def test_png_holds_the_pixels():
    frame = torch.tensor([[[-1.0, 0.0, 1.0], [1.0, -1.0, 5.0]]])
    body = png(frame)
    assert body[:8] == b"\x89PNG\r\n\x1a\n" and struct.unpack(">II", body[16:24]) == (2, 1)
    start = body.index(b"IDAT") + 4
    length = struct.unpack(">I", body[start - 8 : start - 4])[0]
    assert list(zlib.decompress(body[start : start + length])) == [0, 0, 128, 255, 255, 0, 255]


@pytest.mark.parametrize(
    ("text", "demeaned"),
    [
        ("vc8", {0, 1, 2}),
        ("vc8@all", set(range(12))),
        ("vc8@uniform", {0, 4, 8}),
    ],
)
def test_variants_take_means_out_in_their_steps(normal, text, demeaned):
    schedule = Variant(text).schedule(12)
    seen = set()
    for step in range(12):
        schedule.step(step)
        state = schedule.choose_for(0, 0).state
        if state.action[1]:
            seen.add(step)
    assert seen == demeaned
    with pytest.raises(ValueError, match="@all"):
        Variant("vc8@sometimes").schedule(4)


MODEL = """
import torch
from torch import nn

class VideoDiT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(nn.Linear(64, 192) for _ in range(2))

def generate(model, label, frames, height, width, steps, seed, attention, on_step):
    torch.manual_seed(seed)
    x = torch.randn(1, 1, frames * height * width // 16, 64)
    for step in range(steps):
        on_step(step, steps)
        for block in model.blocks:
            q, k, v = block(x).bfloat16().chunk(3, -1)
            x = x + 0.1 * attention(q, k, v).float()
    return x.flatten()[: frames * height * width * 3].view(1, frames, height, width, 3).clamp(-1, 1)
"""


@pytest.fixture
def model_folder(tmp_path):
    torch.manual_seed(0)
    (tmp_path / "model.py").write_text(MODEL)
    tensors = {"patch.weight": torch.randn(4, 4), "patch.bias": torch.zeros(4)}
    for block in range(2):
        tensors[f"blocks.{block}.weight"] = torch.randn(192, 64) / 8
        tensors[f"blocks.{block}.bias"] = torch.zeros(192)
    save_file(tensors, tmp_path / "weights-0.safetensors")
    return tmp_path


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["vcattn.report", "clip", *map(str, arguments)])
    return command.main()


def test_a_whole_report(model_folder, tmp_path, monkeypatch, capsys):
    page, numbers = tmp_path / "out.html", tmp_path / "out.json"
    status = run(
        monkeypatch, "--model", model_folder, "--frames", 4, "--height", 32, "--width", 32,
        "--steps", 4, "--labels", "0,1", "--probe-steps", "0,3", "--variants", "exact,vc8,vc4",
        "--device", "cpu", "-o", page, "--json", numbers,
    )  # fmt: skip
    assert status == 0
    found = json.loads(numbers.read_text())
    by_name = {row["variant"]: row for row in found["results"]}
    assert list(by_name) == ["float32", "exact", "vc8", "vc4"]
    assert by_name["exact"]["rel_l2_mean"] < 1e-5 < by_name["vc8"]["rel_l2_mean"] < 0.1
    assert by_name["vc8"]["rel_l2_mean"] < by_name["vc4"]["rel_l2_mean"]
    assert by_name["vc8"]["calls"] == 2 * 2 * 2  # labels, steps, layers
    assert len(found["calls"]["vc8"]) == 8 and len(found["clips"]["vc8"]["psnr"]) == 2
    assert np.mean(found["clips"]["vc8"]["psnr"]) == pytest.approx(by_name["vc8"]["psnr"]["mean"])
    text = page.read_text()
    assert text.count("data:image/png;base64,") == 2 * 3 * 5  # labels, frames, clips
    assert "http" not in text.replace("http://www.w3.org", "")  # nothing is fetched
    assert "vc4" in capsys.readouterr().out


def test_errors_are_one_line(tmp_path, monkeypatch, capsys, model_folder):
    assert run(monkeypatch, "--model", tmp_path / "nowhere") == 1
    assert "weights-*.safetensors" in capsys.readouterr().err
    assert run(monkeypatch, "--model", model_folder, "--variants", "vc9", "--device", "cpu") == 1
    assert "vc9" in capsys.readouterr().err
