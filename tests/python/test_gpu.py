"""The CUDA backend through PyTorch: values, compile, graphs, streams, memory, devices, threads."""

from __future__ import annotations

import functools
import threading
import time

import numpy as np
import pytest
import torch
import vcattn
from conftest import T8, reference, rel_l2

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not (torch.cuda.is_available() and vcattn.is_available("cuda")),
        reason="no CUDA device, or libvcattn without its CUDA backend",
    ),
]


def make_qkv(batch=1, heads=4, kv_heads=None, queries=1000, keys=None, dim=128, device="cuda"):
    generator = torch.Generator(device).manual_seed(5)
    shapes = (heads, queries), *(((kv_heads or heads), keys or queries),) * 2
    return [
        torch.randn(batch, h, s, dim, generator=generator, device=device).bfloat16()
        for h, s in shapes
    ]


@pytest.fixture
def qkv():
    return make_qkv


@functools.cache
def usable_recipe():
    """vc8 where all of it runs on this device, else without clusters."""
    q = torch.zeros(1, 1, 128, 128, device="cuda", dtype=torch.bfloat16)
    for recipe in ("vc8", "vc8:v_smooth=sequence"):
        if vcattn.can_use(q, q, q, recipe=recipe):
            return recipe
    raise AssertionError(vcattn.why_not(q, q, q))


def attention(*tensors, **options):
    return vcattn.attention(*tensors, **{"recipe": usable_recipe(), **options})


def need(*tensors, **options):
    """Skips where this build refuses the call, with its reason."""
    reason = vcattn.why_not(*tensors, **{"recipe": usable_recipe(), **options})
    if reason:
        pytest.skip(reason)


def on_host(*tensors):
    return [tensor.float().cpu().numpy() for tensor in tensors]


@pytest.mark.parametrize("recipe", ["vc8", "vc8-fast", "vc8:v_smooth=sequence"])
@pytest.mark.parametrize("shape", [{}, {"batch": 2, "queries": 333}, {"kv_heads": 2, "keys": 700}])
def test_values_and_lse(qkv, recipe, shape):
    q, k, v = qkv(**shape)
    k += 0.5
    need(q, k, v, recipe=recipe)
    out, lse = attention(q, k, v, recipe=recipe, return_lse=True)
    expected, expected_lse = reference(*on_host(q, k, v))
    assert out.device == q.device and out.dtype == torch.bfloat16
    assert rel_l2(out.float().cpu(), expected) <= T8
    assert np.abs(lse.cpu().numpy() - expected_lse).max() <= 0.05


def test_explain_names_a_cuda_kernel(qkv):
    assert vcattn.explain(*qkv(), recipe=usable_recipe()).startswith("Kernel sm")
    assert vcattn.supported_archs()


def test_close_to_the_cpu_backend(qkv):
    q, k, v = qkv(queries=1500)
    gpu = attention(q, k, v).float().cpu()
    cpu = attention(q.cpu(), k.cpu(), v.cpu()).float()
    exact, _ = reference(*on_host(q, k, v))
    assert rel_l2(gpu, exact) <= 1.15 * rel_l2(cpu, exact)


def test_views_equal_contiguous_tensors():
    fused = torch.randn(1, 700, 3, 4, 128, device="cuda").bfloat16()
    q, k, v = (fused[:, :, i].transpose(1, 2) for i in range(3))
    dense = [x.contiguous() for x in (q, k, v)]
    assert torch.equal(attention(q, k, v), attention(*dense))
    swapped = attention(*(fused[:, :, i] for i in range(3)), layout="BSHD")
    assert torch.equal(swapped.transpose(1, 2), attention(*dense))


def test_key_lengths(qkv):
    q, k, v = qkv(batch=2, queries=500, keys=600)
    lengths = torch.tensor([600, 129], device="cuda", dtype=torch.int32)
    need(q, k, v, key_lengths=lengths)
    out = attention(q, k, v, key_lengths=lengths)
    expected, _ = reference(*on_host(q, k, v), key_lengths=[600, 129])
    assert rel_l2(out.float().cpu(), expected) <= T8
    k[1, :, 129:], v[1, :, 129:] = torch.nan, torch.inf
    assert torch.equal(attention(q, k, v, key_lengths=lengths), out)


@pytest.mark.parametrize("shape", [{"queries": 0, "keys": 300}, {"queries": 300, "keys": 0}])
def test_empty_shards(shape):
    generator = torch.Generator("cuda").manual_seed(1)
    q, k, v = (
        torch.randn(1, 2, shape[name], 128, generator=generator, device="cuda").bfloat16()
        for name in ("queries", "keys", "keys")
    )
    out, lse = attention(q, k, v, return_lse=True)
    assert out.shape == q.shape and torch.all(out == 0)
    assert lse.shape == q.shape[:3] and torch.all(lse == -torch.inf)


def test_packed_segments(qkv):
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in qkv(queries=500))
    offsets = [0, 100, 100, 371, 500]
    wide = [x[None] for x in (q, k, v)]
    need(*wide, layout="BSHD", cu_seqlens_q=offsets, cu_seqlens_k=offsets)
    out = attention(q, k, v, cu_seqlens_q=offsets, cu_seqlens_k=offsets)
    for begin, end in ((0, 100), (100, 371), (371, 500)):
        alone = attention(*(x[None, begin:end] for x in (q, k, v)), layout="BSHD")
        assert torch.equal(out[begin:end], alone[0])
    on_gpu = torch.tensor(offsets, device="cuda")
    need(*wide, layout="BSHD", cu_seqlens_q=on_gpu, cu_seqlens_k=on_gpu)
    assert torch.equal(attention(q, k, v, cu_seqlens_q=on_gpu, cu_seqlens_k=on_gpu), out)
    recipe = usable_recipe()  # probes are for outside of compiled code

    @torch.compile(fullgraph=True, backend="aot_eager")
    def compiled(q, k, v, offsets):
        return vcattn.attention(q, k, v, recipe=recipe, cu_seqlens_q=offsets, cu_seqlens_k=offsets)

    assert torch.equal(compiled(q, k, v, on_gpu), out)


def test_packed_segments_in_a_graph(qkv):
    q, k, v = (x.transpose(1, 2).flatten(0, 1) for x in qkv(queries=500))
    offsets = [0, 100, 371, 500]

    def call(cu_seqlens):
        return attention(q, k, v, cu_seqlens_q=cu_seqlens, cu_seqlens_k=cu_seqlens)

    on_gpu = torch.tensor(offsets, device="cuda")
    call(offsets)  # kernels are loaded
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        with pytest.raises(vcattn.InvalidArgumentError, match="while a CUDA graph is captured"):
            call(on_gpu)
        found = call(offsets)
    v.copy_(v.flip(0))
    graph.replay()
    assert torch.equal(found, call(offsets))


def test_masks_are_applied_or_handed_back(qkv):
    q, k, v = qkv(queries=300)
    mask = torch.rand(300, 300, device="cuda") < 0.8
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
    found = vcattn.sdpa(q, k, v, mask, recipe=usable_recipe())
    assert rel_l2(found.float().cpu(), expected.float().cpu()) <= T8
    if not vcattn.can_use(q, k, v, mask=mask, recipe=usable_recipe()):
        with pytest.raises(NotImplementedError):
            attention(q, k, v, mask=mask)


def test_opcheck(qkv):
    q, k, v = qkv(queries=200)
    torch.library.opcheck(
        torch.ops.vcattn.attention.default,
        (q, k, v),
        {"return_lse": True, "recipe": usable_recipe()},
    )


def test_compile_equals_eager_at_any_length(qkv):
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("inductor")
    recipe = usable_recipe()  # probes are for outside of compiled code

    def block(q, k, v):
        return vcattn.attention(q * 2, k, v, recipe=recipe)

    compiled = torch.compile(block, fullgraph=True, dynamic=True, backend=counter)
    for tokens in (256, 384, 1000):
        q, k, v = qkv(queries=tokens)
        assert torch.equal(compiled(q, k, v), block(q, k, v))
    assert counter.frame_count == 1


def capture(function):
    """A CUDA graph of a warmed-up call and its output."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = function()
    return graph, out


@pytest.mark.parametrize("recipe", ["vc8", "vc8:v_smooth=off"])
def test_graph_replay_equals_eager(qkv, recipe):
    static = qkv(queries=777)
    need(*static, recipe=recipe)
    graph, out = capture(lambda: attention(*static, recipe=recipe))
    for seed in range(3):
        torch.manual_seed(seed)
        for tensor in static:
            tensor.copy_(torch.randn_like(tensor))
        graph.replay()
        assert torch.equal(out, attention(*static, recipe=recipe))


def test_graphs_of_a_scheduled_layer(qkv):
    """One graph for steps with means, one for later steps; the state's memory stays in place."""
    static = qkv(queries=777)
    need(*static, recipe="vc8")
    state = vcattn.VSmoothState(steps=8, window=0.5, refresh=8)
    state.begin_step(0)
    attention(*static, recipe="vc8", state=state)
    state.begin_step(1)
    with_means, out = capture(lambda: attention(*static, recipe="vc8", state=state))
    static[2].mul_(0.5)
    with_means.replay()
    assert torch.equal(out, attention(*static, recipe="vc8", state=state))


def test_reduce_overhead_mode(qkv):
    torch._dynamo.reset()
    q, k, v = qkv(queries=512)
    recipe = usable_recipe()
    compiled = torch.compile(
        lambda x: vcattn.attention(x, k, v, recipe=recipe) + 1,
        fullgraph=True,
        mode="reduce-overhead",
    )
    with torch.no_grad():
        for _ in range(3):
            torch.compiler.cudagraph_mark_step_begin()
            assert torch.equal(compiled(q), attention(q, k, v) + 1)


def test_runs_on_the_current_stream(qkv):
    sources = qkv(queries=2000)
    expected = attention(*sources)
    targets = [torch.zeros_like(tensor) for tensor in sources]
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        for target, source in zip(targets, sources, strict=True):
            target.copy_(source)
        out = attention(*targets)
    stream.synchronize()
    assert torch.equal(out, expected)


def test_memory_comes_from_pytorch(qkv):
    q, k, v = qkv(heads=8, queries=8192)
    out = attention(q, k, v)
    torch.cuda.synchronize()
    before_free = torch.cuda.mem_get_info()[0]
    torch.cuda.reset_peak_memory_stats()
    held = torch.cuda.memory_allocated()
    for _ in range(5):
        out.copy_(attention(q, k, v))
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == held  # nothing is kept
    assert torch.cuda.max_memory_allocated() > held + out.nbytes  # the workspace is seen
    assert torch.cuda.mem_get_info()[0] >= before_free - (2 << 20)  # and nothing else is taken


def test_out_of_memory_is_typed(qkv):
    q, k, v = qkv(heads=8, queries=16384)
    out = attention(q, k, v)
    expected = out.clone()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 4096) / total)
    try:
        with pytest.raises(MemoryError):
            attention(q, k, v, out=out)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert torch.equal(attention(q, k, v), expected)  # and the next call works


def test_uninitialized_memory_is_never_used(qkv):
    q, k, v = qkv(queries=333)
    expected = attention(q, k, v)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.utils.deterministic.fill_uninitialized_memory  # empties hold NaN now
        assert torch.equal(attention(q, k, v), expected)
    finally:
        torch.use_deterministic_algorithms(False)


def test_repeats_are_identical(qkv):
    q, k, v = qkv(batch=2, heads=8, queries=3000)
    first, first_lse = attention(q, k, v, return_lse=True)
    for _ in range(20):
        out, lse = attention(q, k, v, return_lse=True)
        assert torch.equal(out, first) and torch.equal(lse, first_lse)


def test_calls_in_a_row_share_their_workspace(qkv):
    """Nothing waits between calls that get the same memory: each is what it is alone."""
    sizes = [(8, 3000), (2, 4100), (5, 1000), (8, 2900), (1, 9000), (16, 700)]
    inputs = [[x.roll(i, 2) for x in qkv(heads=h, queries=s)] for i, (h, s) in enumerate(sizes)]
    expected = []
    for tensors in inputs:
        expected.append(attention(*tensors, return_lse=True))
        torch.cuda.synchronize()
    for _ in range(20):
        found = [attention(*tensors, return_lse=True) for tensors in inputs]
        for (out, lse), (alone, alone_lse) in zip(found, expected, strict=True):
            assert torch.equal(out, alone) and torch.equal(lse, alone_lse)


def test_no_host_synchronization(qkv):
    q, k, v = qkv()
    attention(q, k, v)
    torch.cuda.synchronize()
    torch.cuda._sleep(400_000_000)  # about 0.2 s
    started = time.perf_counter()
    attention(q, k, v)
    assert time.perf_counter() - started < 0.05
    torch.cuda.synchronize()


def test_profiler_shows_operator_and_kernels(qkv):
    q, k, v = qkv()
    attention(q, k, v)
    with torch.profiler.profile() as profile:
        attention(q, k, v)
        torch.cuda.synchronize()
    names = {event.key for event in profile.key_averages()}
    assert "vcattn::attention" in names
    assert any("vcattn" in name for name in names - {"vcattn::attention"})


def test_autocast_inference_and_gradients(qkv):
    q, k, v = (x.float() for x in qkv(queries=300))
    with torch.autocast("cuda", torch.bfloat16), torch.inference_mode():
        assert attention(q, k, v).dtype == torch.bfloat16
    q.requires_grad_()
    with pytest.raises(NotImplementedError):
        attention(q, k, v).sum().backward()


def test_threads(qkv):
    inputs = [[x.roll(i, 2) for x in qkv(queries=600)] for i in range(4)]
    expected = [attention(*x) for x in inputs]
    found = [None] * 4

    def work(i):
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(10):
                found[i] = attention(*inputs[i])
            torch.cuda.current_stream().synchronize()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    torch.cuda.synchronize()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_schedule_on_the_device(qkv):
    q, k, v = qkv(queries=1280)
    v += 3 * torch.randn(5, 128, device="cuda")[torch.arange(1280, device="cuda") % 5]
    exact, _ = reference(*on_host(q, k, v))
    need(q, k, v, recipe="vc8")
    with vcattn.Schedule(steps=8) as schedule:
        for step in schedule.track(range(8)):
            out = vcattn.attention(q, k, v)
            assert rel_l2(out.float().cpu(), exact) <= T8, step
        order = schedule.states[0].permutation(head=1)
    assert sorted(order) == list(range(1280))


def test_cpu_tensors_with_the_gpu_asked_for(qkv):
    q, k, v = qkv(device="cpu")
    with pytest.raises(NotImplementedError):
        attention(q, k, v, backend="cuda")
    with pytest.raises(ValueError, match="another device"):
        attention(q, k.cuda(), v)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one device")
def test_the_second_device(qkv):
    q, k, v = qkv(queries=900)
    expected = attention(q, k, v)
    moved = [x.to("cuda:1") for x in (q, k, v)]
    out = attention(*moved)
    assert out.device == torch.device("cuda:1") and torch.cuda.current_device() == 0
    assert torch.equal(out.cpu(), expected.cpu())


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one device")
def test_devices_that_are_not_current_in_threads(qkv):
    """As a rank that never set its device: steps of a schedule, one thread a device."""
    inputs = qkv(queries=900)
    need(*inputs, recipe="vc8")
    outputs = {}

    def work(device):
        with vcattn.Schedule(steps=5) as schedule:
            q, k, v = (x.to(device) for x in inputs)
            outputs[device] = [vcattn.attention(q, k, v).cpu() for _ in schedule.track(range(5))]

    devices = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    threads = [threading.Thread(target=work, args=(device,)) for device in devices]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.cuda.current_device() == 0
    for device in devices[1:]:
        pairs = zip(outputs[device], outputs[devices[0]], strict=True)
        assert all(torch.equal(a, b) for a, b in pairs), device
