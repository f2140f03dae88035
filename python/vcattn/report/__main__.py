"""``python -m vcattn.report clip --model FOLDER``: clips of the videodit model under each variant.

Prints a table, writes one self-contained HTML file and, on request, JSON with every call's error,
from which a later run continues.
"""

from __future__ import annotations

import argparse
import platform
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import torch

from .. import __version__
from .._info import backends
from ..errors import Error
from .measure import Measurement, Progress
from .page import cell, number, page
from .results import FLOOR, Result, add_from_json, to_json
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
                      help="recipes, each alone or with @first, @uniform or @all")  # fmt: skip
    clip.add_argument("--labels", type=integers, default=[0, 1, 2, 3, 4, 5], metavar="0,1,...",
                      help="one clip each; the label is the seed too")  # fmt: skip
    clip.add_argument("--frames", type=int, default=16)
    clip.add_argument("--height", type=int, default=96)
    clip.add_argument("--width", type=int, default=96)
    clip.add_argument("--steps", type=int, default=30)
    clip.add_argument("--probe-steps", type=integers, default=[0, 4, 7, 15, 26],
                      metavar="0,4,...", help="steps whose calls are measured")  # fmt: skip
    clip.add_argument("--only", choices=("calls", "clips", "table"),
                      help="measure only one of the two, or nothing")  # fmt: skip
    clip.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    clip.add_argument("--backend", default="auto", choices=("auto", "cpu", "cuda"),
                      help="auto: CUDA where it has the recipe's kernel, else the CPU")  # fmt: skip
    clip.add_argument("--jobs", type=int, default=1, metavar="N", help="pieces at a time")
    clip.add_argument("--limit", type=float, default=float("inf"), metavar="SECONDS",
                      help="give up what is not finished then")  # fmt: skip
    clip.add_argument("--from", dest="earlier", type=Path, nargs="+", default=[], metavar="FILE",
                      help="JSON of earlier runs, whose numbers are kept")  # fmt: skip
    clip.add_argument("-o", "--output", type=Path, default=Path("vcattn-clips.html"))
    clip.add_argument("--json", type=Path, help="write every number here, after each piece too")
    return root


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


class TimeUp(Exception):
    """A piece was given up."""


Piece = Callable[[Progress], None]


class Report:
    """Runs the pieces that are not measured yet and keeps the files up to date."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.shape = ClipShape(options.frames, options.height, options.width, options.steps)
        facts = protocol(options, self.shape)
        self.runs: list[dict[str, Any]] = []
        self.floor = Result(FLOOR)
        names = options.variants.split(",")
        for name in names:
            Variant(name).schedule(options.steps)  # names and fields are right before hours of work
        self.results = {FLOOR: self.floor, **{name: Result(name) for name in names}}
        alike = {key: facts[key] for key in ("clip", "steps", "measured steps")}
        for file in options.earlier:
            add_from_json(file, self.results, self.runs, alike)
        if options.only != "table":
            self.runs.append(facts)
        self.wanted = [self.results[name] for name in names]
        self.measurement = Measurement(
            VideoModel(options.model, options.device), self.shape, options.backend
        )
        self._end = time.monotonic() + options.limit
        self._writing = threading.Lock()

    def measure(self) -> None:
        with ThreadPoolExecutor(self.options.jobs) as pool:
            for finished in [pool.submit(self._run, piece) for piece in self._pieces()]:
                finished.result()

    def _pieces(self) -> list[Piece]:
        options, m = self.options, self.measurement
        steps = [step for step in options.probe_steps if 0 <= step < self.shape.steps]
        pieces: list[Piece] = []
        if options.only in (None, "calls"):
            for label in options.labels:
                missing = [r for r in self.wanted if not r.has_calls(label)]
                if missing:
                    pieces.append(partial(m.probe_calls, label, missing, steps))
        if options.only in (None, "clips"):
            for label in options.labels:
                if not self.floor.has_clip(label):
                    pieces.append(partial(m.add_floor, label, self.floor))
                missing = [r for r in self.wanted if not r.has_clip(label)]
                pieces += [partial(m.generate_clip, label, result) for result in missing]
        return pieces

    def _run(self, piece: Piece) -> None:
        try:
            piece(self._tell)
        except TimeUp:
            return
        self._write_numbers()

    def _write_numbers(self) -> None:
        if self.options.json:
            with self._writing:
                text = to_json(list(self.results.values()), self.runs)
                self.options.json.write_text(text, encoding="utf-8")

    def _tell(self, text: str) -> None:
        if time.monotonic() > self._end:
            raise TimeUp
        show(text)

    def write(self) -> None:
        self._write_numbers()
        document = page(list(self.results.values()), self.measurement.exact_clips, self.runs)
        self.options.output.write_text(document, encoding="utf-8")

    def print_table(self) -> None:
        show("")
        print(f"\n{'variant':16}{'backend':>9}{'rel. L2':>9}{'worst':>9}  {'PSNR, dB':34}{'SSIM'}")
        for s in (result.summary() for result in self.results.values()):
            errors = f"{number(s['rel_l2_mean'], 4):>9}{number(s['rel_l2_max'], 4):>9}"
            values = f"{cell(s['psnr'], 1):34}{cell(s['ssim'], 4)}"
            print(f"{s['variant']:16}{s['backends']:>9}{errors}  {values}")
        print(f"\n{self.options.output.resolve()}")


def show(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:78}", end="", file=sys.stderr, flush=True)


def main() -> int:
    try:
        report = Report(parser().parse_args())
        report.measure()
        report.write()
        report.print_table()
    except (Error, OSError) as error:
        print(f"vcattn.report: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
