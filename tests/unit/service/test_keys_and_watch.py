"""Counting requests over time, and noticing series of similar pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from service_games import pattern

from onnxfr.errors import SpecError
from onnxfr.service.keys import Client, Limits, TooMany, digest_of, read_keys
from onnxfr.service.query_watch import QueryWatch, WatchSettings, pixel_feature


class Clock:
    def __init__(self, now: float = 86_400.0 * 100) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def served(client: Client, times: int) -> int:
    count = 0
    for _ in range(times):
        try:
            client.charge()
        except TooMany:
            continue
        count += 1
    return count


def test_the_rate_is_kept_over_any_stretch_of_time() -> None:
    clock = Clock()
    client = Client("a", Limits(per_second=5), clock)
    assert served(client, 20) == 5
    total = 0
    for _ in range(100):
        clock.now += 0.1
        total += served(client, 20)
    assert total == pytest.approx(50, abs=1)


def test_waiting_as_told_is_enough() -> None:
    clock = Clock()
    client = Client("a", Limits(per_second=0.25, per_day=3), clock)
    for _ in range(3):
        client.charge()
        with pytest.raises(TooMany) as limit:
            client.charge()
        clock.now += limit.value.retry_after
    client.charge()


def test_the_quota_ends_with_the_day() -> None:
    clock = Clock(86_400.0 * 100 + 86_000)
    client = Client("a", Limits(per_day=2), clock)
    assert served(client, 5) == 2
    with pytest.raises(TooMany) as limit:
        client.charge()
    assert limit.value.retry_after == 400
    clock.now += 400
    assert served(client, 5) == 2


def test_keys_files_are_checked_without_showing_keys(tmp_path: Path) -> None:
    good = tmp_path / "keys.toml"
    good.write_text(
        f'[a]\nkey = "{"x" * 20}"\nper_second = 2\n[b]\nsha256 = "{digest_of(b"y" * 20)}"\n'
    )
    assert set(read_keys(good)) == {"a", "b"}
    good.write_bytes(b"\xef\xbb\xbf" + good.read_bytes())
    assert set(read_keys(good)) == {"a", "b"}, "some editors write a byte-order mark"
    bad = tmp_path / "bad.toml"
    bad.write_text('[a]\nkey = "hunter2"\n')
    with pytest.raises(SpecError, match=r"a\.key") as error:
        read_keys(bad)
    assert "hunter2" not in str(error.value)
    for unsendable in (" hunter2hunter2hunter2", "hunter2\\nhunter2hunter2"):
        bad.write_text(f'[a]\nkey = "{unsendable}"\n')
        with pytest.raises(SpecError, match="fit a header") as error:
            read_keys(bad)
        assert "hunter2" not in str(error.value)
    bad.write_text("[a]\nper_day = 3\n")
    with pytest.raises(SpecError, match="either key or sha256"):
        read_keys(bad)
    bad.write_text("")
    with pytest.raises(SpecError, match="no client"):
        read_keys(bad)


@pytest.mark.parametrize("second", ['key = "{key}"', 'sha256 = "{digest}"'])
def test_one_key_is_one_clients(tmp_path: Path, second: str) -> None:
    key = "x" * 20
    path = tmp_path / "keys.toml"
    entry = second.format(key=key, digest=digest_of(key.encode()))
    path.write_text(f'[alice]\nkey = "{key}"\nper_second = 2\n[carol]\n{entry}\n')
    with pytest.raises(SpecError, match="alice and carol have the same key") as told:
        read_keys(path)
    assert key not in str(told.value)


def test_the_watch_tells_a_walk_from_a_crowd() -> None:
    watch = QueryWatch(WatchSettings(neighbours=10, memory=100))
    noise = np.random.default_rng(0)
    base = pattern(1).astype(float)
    alarms = 0
    for k in range(60):
        step = np.clip(base + noise.normal(0, 2, base.shape), 0, 255).astype(np.uint8)
        alarms += watch.see("walker", bytes([k]), pixel_feature(step)) is not None
        assert watch.see("crowd", bytes([k]), pixel_feature(pattern(k))) is None
    # One alarm per ten queries after it: the memory is emptied by each.
    assert alarms == 60 // 11 and watch.alarms("walker") == alarms


def test_asking_the_same_picture_again_is_no_attack() -> None:
    watch = QueryWatch(WatchSettings(neighbours=3, memory=100))
    feature = pixel_feature(pattern(1))
    assert all(watch.see("a", b"same", feature) is None for _ in range(50))


def test_answers_that_are_no_numbers_raise_no_alarm() -> None:
    watch = QueryWatch(WatchSettings(feature="embedding", neighbours=2, memory=10))
    nothing = np.full(8, np.nan, dtype=np.float32)
    assert all(watch.see("a", bytes([k]), nothing) is None for k in range(9))


def test_blocks_end() -> None:
    clock = Clock()
    settings = WatchSettings(action="block", neighbours=2, memory=10, block_seconds=60)
    watch = QueryWatch(settings, clock)
    feature = pixel_feature(pattern(1))
    assert [watch.see("a", bytes([k]), feature) is not None for k in range(3)][-1]
    assert watch.blocked("a") == 60 and watch.blocked("b") == 0
    clock.now += 61
    assert watch.blocked("a") == 0


@pytest.mark.parametrize("distance", [-0.1, 0.0, float("nan"), float("inf")])
def test_a_watch_that_sees_nothing_or_everything_is_refused(distance: float) -> None:
    with pytest.raises(SpecError, match="above 0"):
        WatchSettings(distance=distance)
