from __future__ import annotations

import logging
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from onnxfr.errors import StoreError
from onnxfr.runs.context import Context
from onnxfr.runs.embedding_cache import EmbeddingCache, Space
from onnxfr.types import Embeddings, Images


def rows_for(keys: Sequence[str], dim: int = 8) -> Embeddings:
    """Rows that depend on their key only."""
    return np.stack(
        [np.random.default_rng(list(key.encode())).standard_normal(dim, np.float32) for key in keys]
    )


def fresh(folder: Path, sha: str = "s", view: str = "") -> Space:
    return EmbeddingCache(folder).space(sha, view)


KEYS = [f"key{i}" for i in range(50)]


def test_what_was_put_is_found_by_a_new_process_image(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path)
    cache.space("s").put(KEYS, rows_for(KEYS))
    cache.close()
    np.testing.assert_array_equal(fresh(tmp_path).get(KEYS[::-1]), rows_for(KEYS[::-1]))


def test_models_and_views_do_not_mix(tmp_path: Path) -> None:
    fresh(tmp_path).put(KEYS, rows_for(KEYS))
    for other in (fresh(tmp_path, "t"), fresh(tmp_path, "s", "flip")):
        assert other.find(KEYS)[1].sum() == 0
        with pytest.raises(StoreError, match="50 of 50"):
            other.get(KEYS)


def test_the_first_answer_stays_and_duplicates_take_no_room(tmp_path: Path) -> None:
    space = fresh(tmp_path)
    space.put(["a", "a"], np.ones((2, 4), np.float32))
    space.put(["a"], np.zeros((1, 4), np.float32))
    assert len(space) == 1
    assert space.get(["a"]).sum() == 4
    with pytest.raises(StoreError, match="got 1 for 2 keys"):
        space.put(["a", "b"], np.zeros((1, 4), np.float32))


@settings(max_examples=25, deadline=None)
@given(cut_dat=st.integers(0, 400), cut_idx=st.integers(0, 300))
def test_torn_files_lose_only_their_tail(
    tmp_path_factory: pytest.TempPathFactory, cut_dat: int, cut_idx: int
) -> None:
    folder = tmp_path_factory.mktemp("cache")
    keys = KEYS[:12]
    cache = EmbeddingCache(folder)
    cache.space("s").put(keys, rows_for(keys))
    cache.close()
    for suffix, cut in (("dat", cut_dat), ("idx", cut_idx)):
        (path,) = folder.rglob(f"*.{suffix}")
        path.write_bytes(path.read_bytes()[: max(0, path.stat().st_size - cut)])
    rows, found = fresh(folder).find(keys)
    whole = max(0, min((12 * 32 - cut_dat) // 32, (12 * 20 - cut_idx) // 20))
    assert found.tolist() == [i < whole for i in range(12)]
    if rows is not None:
        np.testing.assert_array_equal(rows[found], rows_for(keys)[found])
    space = fresh(folder)
    space.put(keys, rows_for(keys))
    np.testing.assert_array_equal(fresh(folder).get(keys), rows_for(keys))


def test_a_damaged_row_is_recomputed_not_believed(tmp_path: Path) -> None:
    cache = EmbeddingCache(tmp_path)
    cache.space("s").put(KEYS, rows_for(KEYS))
    cache.close()
    (path,) = tmp_path.rglob("*.dat")
    data = bytearray(path.read_bytes())
    data[32 * 7 + 3] ^= 1
    path.write_bytes(bytes(data))
    space = fresh(tmp_path)
    _, found = space.find(KEYS)
    assert np.flatnonzero(~found).tolist() == [7]
    space.put([KEYS[7]], rows_for([KEYS[7]]))
    np.testing.assert_array_equal(space.get(KEYS), rows_for(KEYS))
    np.testing.assert_array_equal(fresh(tmp_path).get(KEYS), rows_for(KEYS))


def test_what_was_written_twice_survives_damage_to_the_last_file(tmp_path: Path) -> None:
    first, second = EmbeddingCache(tmp_path), EmbeddingCache(tmp_path)
    spaces = [cache.space("s") for cache in (first, second)]
    assert not any(space.find(KEYS)[1].any() for space in spaces)
    for space in spaces:
        # Both looked before either wrote, as two runs begun at once do.
        space._refresh = lambda: None  # type: ignore[method-assign]
        space.put(KEYS, rows_for(KEYS))
    first.close()
    second.close()
    *_, last = sorted(tmp_path.rglob("*.dat"))
    last.write_bytes(bytes(len(last.read_bytes())))
    assert fresh(tmp_path).find(KEYS)[1].all()
    np.testing.assert_array_equal(fresh(tmp_path).get(KEYS), rows_for(KEYS))


def test_a_cache_deleted_under_a_living_process_is_an_empty_one(tmp_path: Path) -> None:
    space = fresh(tmp_path)
    space.put(KEYS, rows_for(KEYS))
    shutil.rmtree(tmp_path)
    _, found = space.find(KEYS)
    assert not found.any()


WRITER = """
import sys
from pathlib import Path
import numpy as np
from onnxfr.runs.embedding_cache import EmbeddingCache
space = EmbeddingCache(Path(sys.argv[1])).space("s")
for i in range(int(sys.argv[2]), int(sys.argv[3])):
    key = f"key{i}"
    row = np.random.default_rng(list(key.encode())).standard_normal(8, np.float32)
    space.put([key], row[None])
    print(i, flush=True)
"""


def start_writer(folder: Path, first: int, last: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(first), str(last)],
        stdout=subprocess.PIPE,
        text=True,
    )


def test_processes_write_at_once_and_die_at_once(tmp_path: Path) -> None:
    writers = [start_writer(tmp_path, 0, 300), start_writer(tmp_path, 200, 500)]
    endless = start_writer(tmp_path, 1000, 10**9)
    assert endless.stdout is not None
    for _ in range(50):
        assert endless.stdout.readline()
    endless.kill()
    endless.wait()
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    keys = [f"key{i}" for i in [*range(500), *range(1000, 1050)]]
    np.testing.assert_array_equal(fresh(tmp_path).get(keys), rows_for(keys))
    space = fresh(tmp_path)
    space.put(["late"], rows_for(["late"]))
    assert len(list(tmp_path.rglob("*.dat"))) <= 3, "a dead writer's file is taken over"


def test_a_cache_that_cannot_be_written_costs_speed_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    space = fresh(blocked / "below")
    with caplog.at_level(logging.WARNING):
        space.put(KEYS, rows_for(KEYS))
        space.put(KEYS, rows_for(KEYS))
    assert caplog.text.count("not cached any more") == 1
    assert space.find(KEYS)[0] is None


class CountingContext(Context):
    """A context whose only model is arithmetic that counts its images."""

    def __init__(self, cache: Path) -> None:
        super().__init__(cache)
        self.embedded = 0

    def model(self, ref: object) -> Any:
        return SimpleNamespace(card=SimpleNamespace(sha256="s"), embed=self._embed)

    def _embed(self, images: Images) -> NDArray[np.float32]:
        self.embedded += len(images)
        return images.reshape(len(images), -1)[:, :4] * 2


def test_nothing_is_embedded_twice(tmp_path: Path) -> None:
    images = np.arange(10 * 12, dtype=np.float32).reshape(10, 3, 2, 2)
    keys = [f"image{i}" for i in range(10)]
    shown = [0, 1, 1, 2, 9, 0]
    context = CountingContext(tmp_path)

    def load(positions: Sequence[int]) -> Images:
        return images[[shown[i] for i in positions]]

    first = context.embed("m", [keys[i] for i in shown], load, batch_size=3)
    np.testing.assert_array_equal(first, images.reshape(10, -1)[shown, :4] * 2)
    assert context.embedded == 4
    again = CountingContext(tmp_path)
    np.testing.assert_array_equal(again.embed("m", [keys[i] for i in shown], load), first)
    assert again.embedded == 0
    more = again.embed("m", keys, lambda positions: images[list(positions)])
    np.testing.assert_array_equal(more, images.reshape(10, -1)[:, :4] * 2)
    assert again.embedded == 6
    assert again.embed("m", [], load).shape[0] == 0
