"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Callable
from statistics import fmean
from typing import Any

from torch import Tensor

from .png import data_address
from .results import Call, Result

STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#222}
table{border-collapse:collapse;margin:1em 0}td,th{padding:.3em .8em;text-align:right}
th:first-child,td:first-child{text-align:left}tr+tr{border-top:1px solid #ddd}
img{image-rendering:pixelated;width:144px;margin:2px}figure{display:inline-block;margin:.5em}
figcaption{font-size:13px}svg{max-width:100%}code{background:#f3f3f3;padding:0 .3em}
"""
COLORS = ("#0b6e99", "#d1495b", "#66a182", "#edae49", "#5f4bb6", "#8d6a5f", "#2e4057", "#b5838d")


def number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def cell(values: dict[str, float] | None, digits: int) -> str:
    """Mean ± standard deviation (smallest to largest)."""
    if values is None:
        return "–"
    texts = (f"{values[key]:.{digits}f}" for key in ("mean", "stdev", "min", "max"))
    return "{} ± {} ({} to {})".format(*texts)


def table(summaries: list[dict[str, Any]]) -> str:
    head = [
        "variant",
        "backend",
        "mean per-call rel. L2",
        "worst call",
        "PSNR, dB",
        "SSIM",
        "seconds",
    ]
    rows = [
        [
            html.escape(s["variant"]),
            s["backends"],
            number(s["rel_l2_mean"], 4),
            number(s["rel_l2_max"], 4),
            cell(s["psnr"], 1),
            cell(s["ssim"], 4),
            number(s["seconds"], 1),
        ]
        for s in summaries
    ]
    lines = ["<tr>" + "".join(f"<th>{title}</th>" for title in head) + "</tr>"]
    lines += ["<tr>" + "".join(f"<td>{text}</td>" for text in row) + "</tr>" for row in rows]
    return "<table>" + "".join(lines) + "</table>"


def chart(results: list[Result], axis: str, key: Callable[[Call], int]) -> str:
    """Mean error per step or per layer, one line per variant."""
    series: dict[str, dict[int, float]] = {}
    for result in (result for result in results if result.calls):
        groups: dict[int, list[float]] = defaultdict(list)
        for call in result.calls:
            groups[key(call)].append(call.error)
        series[result.name] = {at: fmean(errors) for at, errors in sorted(groups.items())}
    points = [(at, y) for line in series.values() for at, y in line.items()]
    if not points:
        return ""
    left, width, height = 60, 560, 240
    last, top = max(at for at, _ in points) or 1, max(y for _, y in points) * 1.1

    def place(at: int, y: float) -> str:
        return f"{left + at / last * (width - 10):.1f},{height - y / top * (height - 20):.1f}"

    parts = []
    for color, (name, line) in zip(COLORS * 9, series.items(), strict=False):
        path = " ".join(place(at, y) for at, y in line.items())
        parts.append(f'<polyline fill="none" stroke="{color}" stroke-width="2" points="{path}"/>')
        parts += [
            f'<circle cx="{p.split(",")[0]}" cy="{p.split(",")[1]}" r="3" fill="{color}"/>'
            for p in path.split()
        ]
        y = 18 * len([p for p in parts if p.startswith("<text")]) + 20
        label = html.escape(name)
        parts.append(f'<text x="{left + width + 10}" y="{y}" fill="{color}">{label}</text>')
    ticks = "".join(
        f'<text x="{left - 6}" y="{height - share * (height - 20) + 4:.0f}" text-anchor="end" '
        f'font-size="11">{top * share:.3f}</text>'
        for share in (0, 0.5, 1)
    )
    base = f'<line x1="{left}" y1="{height}" x2="{left + width}" y2="{height}" stroke="#999"/>'
    caption = f'<text x="{left}" y="{height + 30}" font-size="13">{axis} (0 to {last})</text>'
    box = f'viewBox="0 0 {width + 260} {height + 40}"'
    return f"<svg {box}>{base}{ticks}{caption}{''.join(parts)}</svg>"


def frames(clips: dict[str, Tensor]) -> str:
    """First, middle and last frame of each clip."""
    figures = []
    for name, clip in clips.items():
        count = clip.shape[1]
        images = "".join(
            f'<img alt="frame {index}" src="{data_address(clip[0, index])}">'
            for index in sorted({0, count // 2, count - 1})
        )
        figures.append(f"<figure>{images}<figcaption>{html.escape(name)}</figcaption></figure>")
    return "".join(figures)


def protocol(run: dict[str, Any]) -> str:
    rows = (
        f"<tr><td>{html.escape(str(key))}</td><td>{html.escape(str(value))}</td></tr>"
        for key, value in run.items()
    )
    return f"<table>{''.join(rows)}</table>"


def page(
    results: list[Result], exact_clips: dict[int, dict[str, Tensor]], runs: list[dict[str, Any]]
) -> str:
    """The whole document. Frames are those of ``exact_clips``'s labels."""
    shown = [
        f"<h3>Label {label}</h3>"
        + frames({**clips, **{r.name: r.frames[label] for r in results if label in r.frames}})
        for label, clips in sorted(exact_clips.items())
    ]
    return f"""<!doctype html><html lang="en"><meta charset="utf-8"><title>vcattn: clips</title>
<style>{STYLE}</style>
<h1>What low-bit attention does to a clip</h1>
<p>Per-call error: relative L2 distance of the attention output from float32 attention on the same
q, k and v, along the trajectory of the 16-bit clip. PSNR and SSIM: against the 16-bit clip, mean ±
standard deviation (range) over clips. The row of float32 attention is the floor: two exact kernels
already differ by that much, because sampling amplifies rounding.</p>
{table([result.summary() for result in results])}
<h2>Error per denoising step</h2>{chart(results, "step", lambda call: call.step)}
<h2>Error per layer</h2>{chart(results, "layer", lambda call: call.layer)}
<h2>Frames</h2>{"".join(shown)}
<h2>Protocol</h2>{"".join(protocol(run) for run in runs)}</html>
"""
