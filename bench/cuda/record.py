#!/usr/bin/env python3
"""Joins what one benchmark run left into one result file.

Usage: record.py OUTPUT_FOLDER COMMIT > h200-attention.json

Reads peers.log (bench/cuda/peers.py), attention.json and attention-rope.json (attention_bench) and
clocks.csv (nvidia-smi before and after), and adds the ratio of each run to each peer at the same
shape.
"""

import csv
import json
import pathlib
import re
import sys

PEER = re.compile(
    r"(\S+) 1x(\d+)x(\d+)x(\d+): ([\d.]+) ms ([\d.]+) TFLOP/s"
    r"(?: \(rel_l2 ([\d.]+) against BF16\))?"
)


def read_peers(path):
    peers = []
    for name, heads, tokens, dim, ms, rate, error in PEER.findall(path.read_text()):
        shape = [1, int(heads), int(tokens), int(dim)]
        peer = {"peer": name, "shape": shape, "median_ms": float(ms), "tflops": float(rate)}
        if error:
            peer["rel_l2_to_bf16"] = float(error)
        peers.append(peer)
    return peers


def main():
    out, commit = pathlib.Path(sys.argv[1]), sys.argv[2]
    peers = read_peers(out / "peers.log")
    runs = json.loads((out / "attention.json").read_text())["runs"]
    runs += json.loads((out / "attention-rope.json").read_text())["runs"]
    for run in runs:
        run["kernel_ratio_to"] = {
            peer["peer"]: round(run["kernel_tflops"] / peer["tflops"], 3)
            for peer in peers
            if peer["shape"] == run["shape"]
        }
    with (out / "clocks.csv").open(newline="") as file:
        clocks = list(csv.DictReader(file, skipinitialspace=True))
    result = {
        "device": clocks[0]["name"],
        "driver": clocks[0]["driver_version"],
        "commit": commit,
        "command": "scripts/gpu_check",
        "protocol": "random normal bf16, 2 warm-ups, median of repeats by events, peers first in the run",
        "clocks_before_and_after": clocks,
        "peers": peers,
        "runs": runs,
    }
    json.dump(result, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
