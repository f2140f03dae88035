"""What a report holds of each variant, and its JSON form, from which a later run continues."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ..errors import FileError

#: The clip that others are compared with: PyTorch's attention in the model's 16 bits.
REFERENCE = "16 bit"
#: The same with the attention in float32: the distance of two exact kernels.
FLOOR = "float32"


class Call(NamedTuple):
    """The error of one attention call."""

    label: int
    step: int
    layer: int
    error: float


class Clip(NamedTuple):
    """One clip against the 16-bit clip of its label: PSNR in dB, SSIM, seconds it took."""

    label: int
    psnr: float
    ssim: float
    seconds: float


@dataclass
class Result:
    """What was measured of one variant. ``frames`` holds the clips that this run made."""

    name: str
    calls: list[Call] = field(default_factory=list)
    clips: list[Clip] = field(default_factory=list)
    backends: set[str] = field(default_factory=set)
    frames: dict[int, Tensor] = field(default_factory=dict)

    def has_calls(self, label: int) -> bool:
        return any(call.label == label for call in self.calls)

    def has_clip(self, label: int) -> bool:
        return any(clip.label == label for clip in self.clips)

    def summary(self) -> dict[str, Any]:
        """Mean and spread of everything."""
        errors = [call.error for call in self.calls]
        return {
            "variant": self.name,
            "backends": " and ".join(sorted(self.backends)),
            "rel_l2_mean": statistics.fmean(errors) if errors else None,
            "rel_l2_max": max(errors, default=None),
            "calls": len(errors),
            "psnr": spread([clip.psnr for clip in self.clips]),
            "ssim": spread([clip.ssim for clip in self.clips]),
            "seconds": sum(clip.seconds for clip in self.clips),
        }


def spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {
        "mean": statistics.fmean(values),
        "stdev": statistics.stdev(values) if len(values) > 1 else 0.0,
        "min": min(values),
        "max": max(values),
        "clips": len(values),
    }


def to_json(results: Iterable[Result], runs: list[dict[str, Any]]) -> str:
    """Every number; one line for each run that took part, summary, and variant."""
    lists = {
        "runs": runs,
        "summaries": [result.summary() for result in results],
        "results": [
            {
                "variant": r.name,
                "backends": sorted(r.backends),
                "calls": [(*call[:3], float(f"{call.error:.6g}")) for call in sorted(r.calls)],
                "clips": sorted(r.clips),
            }
            for r in results
        ],
    }
    parts = (
        f'"{name}": [\n' + ",\n".join(json.dumps(row) for row in rows) + "\n]"
        for name, rows in lists.items()
    )
    return "{\n" + ",\n".join(parts) + "\n}\n"


def add_from_json(
    file: Path, results: dict[str, Result], runs: list[dict[str, Any]], alike: dict[str, Any]
) -> None:
    """Adds what an earlier run measured. Raises FileError if its facts differ from ``alike``."""
    found = json.loads(file.read_text(encoding="utf-8"))
    for run in found["runs"]:
        for key, wanted in alike.items():
            if run[key] != wanted:
                raise FileError(f"{file}: {key} is {run[key]}, this run's is {wanted}", str(file))
    runs += [run for run in found["runs"] if run not in runs]
    for row in found["results"]:
        result = results.setdefault(row["variant"], Result(row["variant"]))
        result.backends.update(row["backends"])
        calls, clips = (
            [Call(*call) for call in row["calls"]],
            [Clip(*clip) for clip in row["clips"]],
        )
        known_calls = {call.label for call in result.calls}
        known_clips = {clip.label for clip in result.clips}
        result.calls += [call for call in calls if call.label not in known_calls]
        result.clips += [clip for clip in clips if clip.label not in known_clips]
