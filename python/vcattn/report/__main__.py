"""``python -m vcattn.report clip --model FOLDER``: clips of the videodit model under each variant.

Prints a table, writes one self-contained HTML file and, on request, JSON with every call's error.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from pathlib import Path
from typing import Any

import torch

from .. import __version__
from .._info import backends
from ..errors import Error
from .measure import FLOOR, REFERENCE, Result, generate_clips, probe_calls, spread
from .metrics import psnr, ssim
from .page import cell, number, page
from .variants import Variant
from .videodit import ClipShape, VideoModel


def integers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def parser() -> argparse.ArgumentParser:
    root = argparse.ArgumentParser(prog="python -m vcattn.report", description=__doc__)
    commands = root.add_subparsers(dest="command", required=True)
    clip = commands.add_parser("clip", help="compare clips and per-call errors")
    clip.add_argument("--model", type=Path, required=True, metavar="FOLDER",
                      help="folder with model.py and weights-*.safetensors")  # fmt: skip
    clip.add_argument("--variants", default="sage2,vc8,vc8-paper,sage3,vc4",
                      help="recipes, each alone or with @uniform or @all")  # fmt: skip
    clip.add_argument("--labels", type=integers, default=[0, 1, 2, 3, 4, 5], metavar="0,1,...",
                      help="one clip each; the label is the seed too")  # fmt: skip
    clip.add_argument("--frames", type=int, default=16)
    clip.add_argument("--height", type=int, default=96)
    clip.add_argument("--width", type=int, default=96)
    clip.add_argument("--steps", type=int, default=30)
    clip.add_argument("--probe-steps", type=integers, default=[0, 4, 7, 15, 26],
                      metavar="0,4,...", help="steps whose calls are measured")  # fmt: skip
    clip.add_argument("--only", choices=("calls", "clips"), help="measure only one of the two")
    clip.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    clip.add_argument("--backend", default="auto", choices=("auto", "cpu", "cuda"))
    clip.add_argument("-o", "--output", type=Path, default=Path("vcattn-clips.html"))
    clip.add_argument("--json", type=Path, help="write every number here")
    return root


def show_progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:78}", end="", file=sys.stderr, flush=True)


def protocol(options: argparse.Namespace, shape: ClipShape) -> dict[str, Any]:
    tokens = shape.frames * (shape.height // 4) * (shape.width // 4)
    return {
        "command": " ".join(sys.argv[1:]),
        "clip": f"{shape.frames} x {shape.height} x {shape.width}, {tokens} tokens",
        "steps": shape.steps,
        "labels": ", ".join(map(str, options.labels)),
        "measured steps": ", ".join(map(str, options.probe_steps)),
        "vcattn": __version__,
        "backends": "; ".join(f"{b['name']}: {b['status']}" for b in backends()),
        "PyTorch": f"{torch.__version__} on {options.device}",
        "machine": platform.platform(),
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


def run(options: argparse.Namespace) -> int:
    shape = ClipShape(options.frames, options.height, options.width, options.steps)
    outside = [step for step in options.probe_steps if not 0 <= step < shape.steps]
    probe_steps = [step for step in options.probe_steps if step not in outside]
    model = VideoModel(options.model, options.device)
    results = {name: Result(name) for name in options.variants.split(",")}
    for name in results:
        Variant(name).schedule(shape.steps)  # names and fields are right before hours of work
    floor = Result(FLOOR)
    exact_clips = {}
    for label in options.labels:
        if options.only != "clips":
            probe_calls(model, shape, label, results, probe_steps, options.backend, show_progress)
        if options.only != "calls":
            clips = generate_clips(model, shape, label, results, options.backend, show_progress)
            floor.psnr.append(psnr(clips[FLOOR], clips[REFERENCE]))
            floor.ssim.append(ssim(clips[FLOOR], clips[REFERENCE]))
            exact_clips[label] = clips
    facts = protocol(options, shape)
    summaries = [floor.summary(), *(result.summary() for result in results.values())]
    document = page(list(results.values()), floor.summary(), exact_clips, facts)
    options.output.write_text(document, encoding="utf-8")
    if options.json:
        calls = {name: [vars(call) for call in r.calls] for name, r in results.items()}
        clip_values = {name: {"psnr": r.psnr, "ssim": r.ssim} for name, r in results.items()}
        everything = {
            "protocol": facts, "results": summaries, "calls": calls, "clips": clip_values,
            "floor": {"psnr": spread(floor.psnr), "ssim": spread(floor.ssim)},
        }  # fmt: skip
        options.json.write_text(json.dumps(everything, indent=1), encoding="utf-8")
    show_progress("")
    print(f"\n{'variant':16}{'rel. L2':>9}{'worst':>9}  {'PSNR, dB':34}{'SSIM'}")
    for s in summaries:
        errors = f"{number(s['rel_l2_mean'], 4):>9}{number(s['rel_l2_max'], 4):>9}"
        print(f"{s['variant']:16}{errors}  {cell(s['psnr'], 1):34}{cell(s['ssim'], 4)}")
    print(f"\n{options.output.resolve()}")
    return 0


def main() -> int:
    try:
        return run(parser().parse_args())
    except (Error, OSError) as error:
        print(f"vcattn.report: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
