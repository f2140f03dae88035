"""Schedule: states by call order, window and refresh, rules, exceptions."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import vcattn
from conftest import reference, rel_l2
from vcattn.schedule import active


def clip(normal, tokens=300, heads=1):
    """Clustered values, as real ones are: there is something for V-Smooth to remove."""
    q, k = normal(1, heads, tokens, 64), normal(1, heads, tokens, 64)
    centers = 3 * normal(4, 64)
    v = normal(1, heads, tokens, 64) * 0.3 + centers[np.arange(tokens) % 4]
    return q, k, v


def test_steps_follow_window_and_refresh(normal):
    q, k, v = clip(normal)
    with vcattn.Schedule(steps=20, window=0.5, refresh=4) as schedule:
        permutations = []
        for step in schedule.track(range(20)):
            vcattn.attention(q, k, v + 0.01 * step * normal(1, 1, 300, 64))
            permutations.append(schedule.states[0].permutation())
            assert schedule.states[0].action[1]  # means are taken out
        assert schedule.states[0].action == (False, True)
    changes = [step for step in range(1, 20) if permutations[step] != permutations[step - 1]]
    assert set(changes) <= {4, 8}  # recomputed every 4 steps of the first 10, then kept
    assert sorted(permutations[0]) == list(range(300))
    assert permutations[10:] == [permutations[9]] * 10


def test_a_layer_equals_its_own_state(normal):
    layers = [clip(normal) for _ in range(3)]
    expected = []
    states = [vcattn.VSmoothState(steps=8) for _ in layers]
    for step in range(8):
        for state, qkv in zip(states, layers, strict=True):
            state.begin_step(step)
            expected.append(vcattn.attention(*qkv, state=state))
    with vcattn.Schedule(steps=8) as schedule:
        found = [vcattn.attention(*qkv) for _ in schedule.track(range(8)) for qkv in layers]
        assert len(schedule.states) == 3
    assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))


def test_means_help_on_clustered_values(normal):
    q, k, v = clip(normal, tokens=1024)
    expected, _ = reference(q, k, v)
    only_v = vcattn.Recipe("exact", v="e4m3-channel", v_smooth="clustered", keys_per_cluster=256)

    def errors(means):
        with vcattn.Schedule(steps=4, window=0.25, means=means, recipe=only_v) as schedule:
            return [rel_l2(vcattn.attention(q, k, v), expected) for _ in schedule.track(range(4))]

    everywhere, paper = errors("all"), errors("window")
    assert everywhere == [everywhere[0]] * 4 and paper[0] == everywhere[0]
    assert paper[0] < 0.3 * paper[1] and paper[1] == paper[2] == paper[3]


def test_rules_choose_recipes(normal):
    q, k, v = clip(normal)
    rules = [vcattn.Rule("exact", layers=[-1]), vcattn.Rule("vc4", steps=[0, -1])]
    with vcattn.Schedule(steps=5, layers=2, rules=rules, recipe="vc8") as schedule:
        seen = []
        for _ in schedule.track(range(5)):
            seen.append((schedule.recipe_at(0), schedule.recipe_at(1)))
            first, last = vcattn.attention(q, k, v), vcattn.attention(q, k, v)
            assert rel_l2(last, reference(q, k, v)[0]) < 1e-4 < rel_l2(first, last)
    assert seen == [("vc4", "exact")] + [("vc8", "exact")] * 3 + [("vc4", "exact")]


def test_second_guidance_pass_has_states_of_its_own_but_the_same_layers(normal):
    q, k, v = clip(normal)
    rules = [vcattn.Rule("exact", layers=[1])]
    with vcattn.Schedule(steps=1, layers=2, rules=rules) as schedule:
        outs = [vcattn.attention(q, k, v) for _ in range(4)]
        assert len(schedule.states) == 4
    assert np.array_equal(outs[1], outs[3]) and np.array_equal(outs[0], outs[2])
    assert not np.array_equal(outs[0], outs[1])


def test_explicit_arguments_win(normal):
    q, k, v = clip(normal)
    with vcattn.Schedule(steps=2, recipe="vc4"):
        out = vcattn.attention(q, k, v, recipe="exact")
    assert rel_l2(out, reference(q, k, v)[0]) < 1e-5


def test_ring_shards_make_up_one_layer():
    schedule = vcattn.Schedule(steps=1, layers=2, rules=[vcattn.Rule("vc4", layers=[1])])
    with schedule:
        recipes = [schedule.choose(50, 40, shards=3).recipe for _ in range(6)]
    assert recipes == ["vc8"] * 3 + ["vc4"] * 3
    assert len({id(state) for state in schedule.states.values()}) == 6


def test_cross_attention_goes_to_torch_by_default():
    with vcattn.Schedule(steps=1) as schedule:
        assert schedule.choose(100, 20) == ("torch", None)
    with vcattn.Schedule(steps=1, cross="vc8") as schedule:
        assert schedule.choose(100, 20) == ("vc8", None)


def test_exceptions_and_nesting_restore_what_was_active():
    outer, inner = vcattn.Schedule(steps=2), vcattn.Schedule(steps=3)
    with outer:
        with pytest.raises(ZeroDivisionError), inner:
            assert active() is inner
            1 / 0  # noqa: B018
        assert active() is outer
    assert active() is None


def test_entering_again_starts_a_new_clip(normal):
    q, k, v = clip(normal)
    schedule = vcattn.Schedule(steps=8)
    runs = []
    for _ in range(2):
        with schedule:
            runs.append([vcattn.attention(q, k, v) for _ in schedule.track(range(8))])
    assert all(np.array_equal(a, b) for a, b in zip(*runs, strict=True))


def test_other_threads_are_not_affected(normal):
    seen = []
    with vcattn.Schedule(steps=1):
        thread = threading.Thread(target=lambda: seen.append(active()))
        thread.start()
        thread.join()
    assert seen == [None]


def test_two_threads_with_two_schedules(normal):
    clips = {"vc8": clip(normal), "vc4": clip(normal, tokens=200)}

    def run(recipe):
        with vcattn.Schedule(steps=5, recipe=recipe) as schedule:
            return [vcattn.attention(*clips[recipe]) for _ in schedule.track(range(5))]

    expected = {recipe: run(recipe) for recipe in clips}
    assert not np.array_equal(expected["vc4"][0], vcattn.attention(*clips["vc4"]))
    with ThreadPoolExecutor(len(clips)) as pool:
        found = dict(zip(clips, pool.map(run, clips), strict=True))
    for name, outs in expected.items():
        assert all(np.array_equal(a, b) for a, b in zip(found[name], outs, strict=True)), name


def test_another_model_groups_for_itself(normal):
    inputs, schedule = [clip(normal), clip(normal)], vcattn.Schedule(steps=8, refresh=2)
    for _ in range(2):  # the second clip as the first
        states = [vcattn.VSmoothState(8, refresh=2) for _ in range(2)]
        with schedule:
            for step in schedule.track(range(8)):
                if step == 5:
                    schedule.switch_model()
                model = int(step >= 5)
                states[model].begin_step(step - 5 * model)
                found = vcattn.attention(*inputs[model])
                given = {"recipe": "vc8", "state": states[model]}
                assert np.array_equal(found, vcattn.attention(*inputs[model], **given))
            assert set(schedule.states) == {0, (1, 0)}
            assert schedule.states[1, 0].permutation() == states[1].permutation() != []
    schedule.step(4)  # before the switch
    assert schedule.choose(9, 9).state is schedule.states[0]


def test_callback_announces_the_next_step():
    with vcattn.Schedule(steps=3) as schedule:
        steps = []
        for index in range(3):
            steps.append(schedule.current_step)
            assert schedule.callback(None, index, None, {"latents": 1}) == {"latents": 1}
    assert steps == [0, 1, 2]


@pytest.mark.parametrize(
    "arguments",
    [
        {"steps": 0},
        {"steps": 4, "window": 1.5},
        {"steps": 4, "refresh": 0},
        {"steps": 4, "means": "none"},
        {"steps": 4, "recipe": "vc9"},
        {"steps": 4, "rules": [vcattn.Rule("vc9")]},
        {"steps": 4, "rules": [vcattn.Rule("vc8", layers=[-1])]},
        {"steps": 4, "rules": [vcattn.Rule("vc8", layers=[2])], "layers": 2},
        {"steps": 4, "rules": [vcattn.Rule("vc8", steps=[4])]},
    ],
)
def test_wrong_schedules(arguments):
    with pytest.raises(ValueError):
        vcattn.Schedule(**arguments)


def test_steps_outside_the_schedule():
    schedule = vcattn.Schedule(steps=4)
    with pytest.raises(ValueError, match="0 to 3"):
        schedule.step(4)
