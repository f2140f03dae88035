#!/usr/bin/env python3
"""What the GPU machine's own libraries need for the same shapes: PyTorch SDPA with cuDNN, BF16.

Usage: peers.py HEADSxTOKENSxDIM...
"""
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


def median_ms(run, repeats=5):
    run()
    run()
    torch.cuda.synchronize()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return statistics.median(times)


def main():
    for shape in sys.argv[1:]:
        heads, tokens, dim = map(int, shape.split("x"))
        q, k, v = (
            torch.randn(1, heads, tokens, dim, device="cuda", dtype=torch.bfloat16)
            for _ in range(3)
        )
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            ms = median_ms(lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v))
        rate = 4 * heads * tokens**2 * dim / ms * 1e-9
        print(f"cudnn-bf16 1x{shape}: {ms:.3f} ms {rate:.1f} TFLOP/s", flush=True)


if __name__ == "__main__":
    main()
