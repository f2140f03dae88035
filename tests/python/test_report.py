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
        ("vc8", set(range(12))),
        ("vc8@first", {0, 1, 2}),
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
    by_name = {row["variant"]: row for row in found["summaries"]}
    assert list(by_name) == ["float32", "exact", "vc8", "vc4"]
    assert by_name["exact"]["rel_l2_mean"] < 1e-5 < by_name["vc8"]["rel_l2_mean"] < 0.1
    assert by_name["vc8"]["rel_l2_mean"] < by_name["vc4"]["rel_l2_mean"]
    assert by_name["vc8"]["calls"] == 2 * 2 * 2  # labels, steps, layers
    assert by_name["vc8"]["backends"] == "cpu" and by_name["vc8"]["psnr"]["clips"] == 2
    rows = {row["variant"]: row for row in found["results"]}["vc8"]
    assert [call[:3] for call in rows["calls"]] == [
        [label, step, layer] for label in (0, 1) for step in (0, 3) for layer in (0, 1)
    ]
    mean = np.mean([error for *_, error in rows["calls"]])
    assert by_name["vc8"]["rel_l2_mean"] == pytest.approx(mean, rel=1e-5)
    mean = np.mean([psnr for _, psnr, _, _ in rows["clips"]])
    assert by_name["vc8"]["psnr"]["mean"] == pytest.approx(mean)
    text = page.read_text()
    assert text.count("data:image/png;base64,") == 2 * 3 * 5  # labels, frames, clips
    assert "http" not in text.replace("http://www.w3.org", "")  # nothing is fetched
    assert "vc4" in capsys.readouterr().out


TOY = ("--frames", 4, "--height", 32, "--width", 32, "--steps", 4, "--probe-steps", "0,3",
       "--device", "cpu")  # fmt: skip


def test_a_report_continues_and_merges_earlier_ones(model_folder, tmp_path, monkeypatch):
    def report(name, *more):
        numbers = tmp_path / f"{name}.json"
        toy = ("--model", model_folder, *TOY, "-o", tmp_path / "page.html", "--json", numbers)
        assert run(monkeypatch, *toy, *more) == 0
        return numbers

    whole = report("whole", "--labels", "0,1", "--variants", "vc8,vc4", "--jobs", 3)
    first = report("first", "--labels", "1", "--variants", "vc8")
    marked = json.loads(first.read_text())
    (vc8,) = (row for row in marked["results"] if row["variant"] == "vc8")
    vc8["clips"][0][3] = 12345.0  # seconds: tells the kept clip from one made again
    first.write_text(json.dumps(marked))
    second = report("second", "--labels", "0,1", "--variants", "vc8,vc4", "--from", first)
    third = report("third", "--only", "table", "--variants", "vc4,vc8", "--from", first, second)
    assert "data:image/png" not in (tmp_path / "page.html").read_text()  # no new clips

    def figures(file):
        found = json.loads(file.read_text())
        return {
            row["variant"]: (row["calls"], [clip[:3] for clip in row["clips"]])
            for row in found["results"]
        }

    assert (
        figures(third) == figures(second) == figures(whole)
    )  # in three threads, in two runs: the same numbers
    (vc8,) = (r for r in json.loads(second.read_text())["results"] if r["variant"] == "vc8")
    assert vc8["clips"][1][3] == 12345.0 != vc8["clips"][0][3]
    assert len(json.loads(second.read_text())["runs"]) == 2


def test_what_is_given_up_is_not_in_the_numbers(model_folder, tmp_path, monkeypatch, capsys):
    numbers = tmp_path / "numbers.json"
    arguments = ("--model", model_folder, *TOY, "-o", tmp_path / "page.html", "--json", numbers)
    assert run(monkeypatch, *arguments, "--labels", "0", "--limit", 0) == 0
    assert "vc8" in capsys.readouterr().out
    rows = json.loads(numbers.read_text())["results"]
    assert len(rows) == 6 and not any(row["calls"] or row["clips"] for row in rows)
    assert run(monkeypatch, *arguments, "--labels", "0", "--variants", "vc8") == 0
    other = (*arguments, "--steps", 5, "--labels", "0", "--from", numbers)
    assert run(monkeypatch, *other) == 1
    assert "steps is 4, this run's is 5" in capsys.readouterr().err


def test_errors_are_one_line(tmp_path, monkeypatch, capsys, model_folder):
    assert run(monkeypatch, "--model", tmp_path / "nowhere") == 1
    assert "weights-*.safetensors" in capsys.readouterr().err
    assert run(monkeypatch, "--model", model_folder, "--variants", "vc9", "--device", "cpu") == 1
    assert "vc9" in capsys.readouterr().err
