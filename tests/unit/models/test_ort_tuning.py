"""The measurement picks what is really faster, in bounded time, and remembers it safely."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import groupby

import pytest

from onnxfr.models.ort_tuning import (
    Setting,
    SettingCache,
    Tuner,
    clear_winner,
    default_setting,
    in_lanes,
)

KEY: dict[str, str | int] = {"model": "abc", "cpu": "some", "cores": 4}


def compute(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def tune(cost, *, cores=2, can_split=True, fixed_batch=None, budget=1.0):
    """Tune a pretended model: ``cost(threads, split, images)`` is how long one run computes."""

    def runner(threads, split):
        return lambda images: compute(cost(threads, split, len(images)))

    return Tuner(runner, (3, 4, 4), cores, fixed_batch, budget).tune(can_split=can_split)


def test_only_a_clear_gain_replaces_the_incumbent():
    incumbent = default_setting(2)
    other = Setting(threads=2, lanes=1, chunk=4, split_prelu=True)
    assert clear_winner({incumbent: 1.0, other: 0.99}, incumbent) == incumbent
    assert clear_winner({incumbent: 1.0, other: 0.9}, incumbent) == other


@pytest.mark.parametrize("split_pays", [True, False])
def test_the_rewrite_is_used_only_where_it_pays(split_pays):
    chosen = tune(lambda _, split, images: 0.002 * images * (1 if split == split_pays else 2))
    assert chosen.split_prelu is split_pays


def test_a_model_without_prelu_is_never_opened_split():
    seen = set()

    def cost(_, split, images):
        seen.add(split)
        return 0.001 * images

    assert not tune(cost, can_split=False).split_prelu
    assert seen == {False}


def test_threads_win_where_lanes_are_slow():
    def runner(threads, _):
        if threads == 2:
            return lambda images: time.sleep(0.002 * len(images))
        return lambda images: compute(0.02 * len(images))

    chosen = Tuner(runner, (3, 4, 4), 2, budget_seconds=1.0).tune(can_split=False)
    assert (chosen.threads, chosen.lanes) == (2, 1)


def test_a_dear_call_asks_for_large_chunks():
    assert tune(lambda _, __, images: 0.004 + 0.00005 * images).chunk >= 32


def test_growing_chunks_that_slow_down_are_avoided():
    assert tune(lambda _, __, images: 0.001 * images**1.5).chunk == 1


def test_chunks_are_timed_over_as_many_pictures_each():
    fed = []

    def cost(_, __, images):
        fed.append(images)
        return 0.0002 * images

    tune(cost, cores=1, can_split=False, budget=20.0)
    warm_up, *timed = fed
    assert warm_up == 1 and set(timed) >= {1, 4, 8, 16}
    assert all(sum(turn) >= 16 for _, turn in groupby(timed))


def test_a_fixed_batch_stays():
    assert tune(lambda _, __, images: 0.0005 * images, fixed_batch=3).chunk == 3


def test_slow_models_do_not_exceed_the_budget_by_much():
    def runner(threads, _):
        return lambda images: time.sleep(0.05 * len(images) / threads)

    start = time.perf_counter()
    Tuner(runner, (3, 4, 4), 2, budget_seconds=0.5).tune(can_split=True)
    assert time.perf_counter() - start < 2


def test_lanes_never_exceed_the_setting():
    running, most, lock = 0, 0, threading.Lock()

    def runner(threads, _):
        def run(images):
            nonlocal running, most
            with lock:
                running += threads
                most = max(most, running)
            time.sleep(0.0005 * len(images))
            with lock:
                running -= threads

        return run

    Tuner(runner, (3, 4, 4), 8, budget_seconds=0.5).tune(can_split=False)
    assert most <= 8


def test_a_failure_in_a_lane_reaches_the_caller_and_stops_the_rest():
    done = []

    def work(item):
        if item == 0:
            raise ValueError("lane 0")
        time.sleep(0.01)
        done.append(item)

    with ThreadPoolExecutor(1) as pool, pytest.raises(ValueError, match="lane 0"):
        in_lanes(pool, work, range(100))
    assert len(done) < 50


def test_settings_round_trip(tmp_path):
    cache = SettingCache(tmp_path / "ort")
    setting = Setting(threads=2, lanes=2, chunk=8, split_prelu=False)
    assert cache.read(KEY, 4) is None
    cache.write(KEY, setting)
    assert cache.read(KEY, 4) == setting
    assert cache.read({**KEY, "cpu": "other"}, 4) is None
    assert [path.suffix for path in (tmp_path / "ort").iterdir()] == [".json"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '{"setting": {}}',
        '{"key": {}, "setting": {"threads": 1, "lanes": 1, "chunk": 1, "split_prelu": true}}',
        "\x00\xff",
    ],
)
def test_damaged_files_are_ignored(tmp_path, text):
    cache = SettingCache(tmp_path)
    cache.path(KEY).write_text(text)
    assert cache.read(KEY, 4) is None


@pytest.mark.parametrize(
    "change",
    [
        {"threads": 0},
        {"chunk": -4},
        {"lanes": 9},
        {"chunk": 1.5},
        {"threads": True},
        {"split_prelu": 1},
    ],
)
def test_senseless_settings_are_ignored(tmp_path, change):
    cache = SettingCache(tmp_path)
    senseless = Setting(**{**asdict(default_setting(4)), **change})
    cache.write(KEY, senseless)
    assert cache.read(KEY, 4) is None
