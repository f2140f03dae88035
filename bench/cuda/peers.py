#!/usr/bin/env python3
"""What the GPU machine's own libraries need for the same shapes: cuDNN, BF16 through PyTorch's SDPA
and, where nvidia-cudnn-frontend can be imported, FP8 (E4M3 in and out, one scale per tensor).

Usage: peers.py HEADSxTOKENSxDIM...
"""
import statistics
import sys

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention


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


def report(peer, shape, run, note=""):
    heads, tokens, dim = map(int, shape.split("x"))
    ms = median_ms(run)
    rate = 4 * heads * tokens**2 * dim / ms * 1e-9
    print(f"{peer} 1x{shape}: {ms:.3f} ms {rate:.1f} TFLOP/s{note}", flush=True)


def fp8_attention(cudnn, q, k, v, out_scale):
    """A function that computes attention of E4M3 tensors (BHSD), and its output times out_scale."""
    e4m3, fp32 = cudnn.data_type.FP8_E4M3, cudnn.data_type.FLOAT
    graph = cudnn.pygraph(
        io_data_type=e4m3, intermediate_data_type=fp32, compute_data_type=fp32
    )
    probability_scale = 256.0  # to the largest power of two of E4M3
    values = {"q": q, "k": k, "v": v}
    for name, scale in (
        ("descale_q", 1.0),
        ("descale_k", 1.0),
        ("descale_v", 1.0),
        ("descale_s", 1.0 / probability_scale),
        ("scale_s", probability_scale),
        ("scale_o", out_scale),
    ):
        values[name] = torch.full((1, 1, 1, 1), scale, device="cuda")
    inputs = {
        name: graph.tensor(
            name=name,
            dim=list(value.shape),
            stride=list(value.stride()),
            data_type=e4m3 if value.dtype == torch.float8_e4m3fn else fp32,
        )
        for name, value in values.items()
    }
    result, _, amax_s, amax_o = graph.sdpa_fp8(
        **inputs, attn_scale=q.shape[-1] ** -0.5, generate_stats=False
    )
    out = torch.empty_like(q)
    outputs = {result: out}
    result.set_output(True).set_dim(list(out.shape)).set_stride(list(out.stride()))
    for amax in (amax_s, amax_o):
        amax.set_output(True).set_dim([1, 1, 1, 1]).set_stride([1, 1, 1, 1]).set_data_type(fp32)
        outputs[amax] = torch.empty(1, 1, 1, 1, device="cuda")
    graph.validate()
    graph.build_operation_graph()
    graph.create_execution_plans([cudnn.heur_mode.A])
    graph.check_support()
    graph.build_plans()
    workspace = torch.empty(graph.get_workspace_size(), device="cuda", dtype=torch.uint8)
    pack = {inputs[name]: value for name, value in values.items()} | outputs
    return lambda: graph.execute(pack, workspace), out


def main():
    try:
        import cudnn
    except ImportError as error:
        print(f"cudnn-fp8 is not timed: {error}", flush=True)
        cudnn = None
    for shape in sys.argv[1:]:
        heads, tokens, dim = map(int, shape.split("x"))
        q, k, v = (
            torch.randn(1, heads, tokens, dim, device="cuda", dtype=torch.bfloat16)
            for _ in range(3)
        )
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            report("cudnn-bf16", shape, lambda q=q, k=k, v=v: attention(q, k, v))
            exact = attention(q, k, v).float()
        if cudnn is None:
            continue
        out_scale = 448.0 / exact.abs().max().item()
        try:
            run, out = fp8_attention(
                cudnn, *(x.to(torch.float8_e4m3fn) for x in (q, k, v)), out_scale
            )
        except (RuntimeError, cudnn.cudnnGraphNotSupportedError) as error:
            print(f"cudnn-fp8 1x{shape} is not timed: {error}", flush=True)
            continue
        run()
        error = (out.float() / out_scale - exact).norm() / exact.norm()
        report("cudnn-fp8", shape, run, f" (rel_l2 {error.item():.4f} against BF16)")


if __name__ == "__main__":
    main()
