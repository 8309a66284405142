from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from toy_runs import records_of, toy_cells, toy_work

from onnxfr.errors import StoreError
from onnxfr.runs.cells import Cell
from onnxfr.runs.engines.local import LocalEngine
from onnxfr.runs.execute import execute, missing
from onnxfr.runs.records import IDENTITY, join, to_table
from onnxfr.runs.store import RunStore

CELLS = toy_cells(rows=12, size=3)


def finish(store: RunStore, cells: list[Cell] = CELLS) -> None:
    with store.working():
        store.write_manifest({}, cells)
        execute(cells, store, LocalEngine(), toy_work(store.folder / "cache"))


def shard(store: RunStore, cell: Cell) -> Path:
    return store.cells / f"{cell.key}.parquet"


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    made = RunStore(tmp_path / "run")
    finish(made)
    return made


def test_records_carry_the_identity_of_their_cell(store: RunStore) -> None:
    records = store.records()
    assert tuple(records.column_names[: len(IDENTITY)]) == IDENTITY
    assert set(records["cell"].to_pylist()) == {cell.key for cell in CELLS}
    assert set(records["model"].to_pylist()) == {"toy"}
    assert set(records["data"].to_pylist()) == {"toy"}
    assert store.evaluators() == ["toy_hash"]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="no list of threads here")
def test_reading_leaves_no_thread_that_could_abort_the_process_at_its_end(store: RunStore) -> None:
    program = (
        "import os, sys, pathlib\n"
        "from onnxfr.runs.store import RunStore\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "assert RunStore.open(pathlib.Path(sys.argv[1])).records().num_rows\n"
        "print(len(os.listdir('/proc/self/task')) - before)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(store.folder)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "0"


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9, 0.999])
def test_a_truncated_shard_counts_as_missing_and_is_recomputed(
    store: RunStore, keep: float
) -> None:
    before = records_of(store)
    path = shard(store, CELLS[1])
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    assert missing(CELLS, store) == [CELLS[1]]
    assert store.records().num_rows == 9
    finish(store)
    assert records_of(store) == before


def test_flipped_bits_never_pass_as_records(store: RunStore) -> None:
    path = shard(store, CELLS[0])
    data = path.read_bytes()
    intact = store.read(CELLS[0].key)
    for place in range(4, len(data), max(1, len(data) // 400)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :])
        table = store.read(CELLS[0].key)
        # Some bytes carry no values (statistics, the writer's name): there the records are equal.
        assert table is None or table.equals(intact)


def test_a_shard_under_a_wrong_name_is_not_believed(store: RunStore) -> None:
    shutil.copy(shard(store, CELLS[0]), shard(store, CELLS[1]))
    assert missing(CELLS, store) == [CELLS[1]]


def test_leftovers_of_killed_writers_are_ignored_and_cleaned(store: RunStore) -> None:
    leftover = store.cells / ".tmp-abc.parquet-123"
    leftover.write_bytes(b"half")
    assert records_of(store)
    with store.working():
        assert not leftover.exists()


def test_a_second_process_is_refused_and_a_killed_one_does_not_block(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from onnxfr.runs.store import RunStore\n"
        "with RunStore(Path(sys.argv[1])).working():\n"
        "    print('in', flush=True)\n"
        "    time.sleep(60)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "in\n"
        with (
            pytest.raises(StoreError, match=rf"pid {holder.pid}\) is working"),
            RunStore(tmp_path).working(),
        ):
            pass
    finally:
        holder.kill()
        holder.wait()
    with RunStore(tmp_path).working():
        pass


def test_a_folder_without_manifest_or_with_a_broken_one_is_refused(
    tmp_path: Path, store: RunStore
) -> None:
    with pytest.raises(StoreError, match="no run directory"):
        RunStore.open(tmp_path)
    store.manifest_file.write_text("{")
    with pytest.raises(StoreError, match="cannot be read"):
        store.records()
    store.manifest_file.write_text('{"version": 99}')
    with pytest.raises(StoreError, match="another layout"):
        store.records()
    finish(store)
    assert len(records_of(store)) == 12


def test_sessions_are_appended_and_survive_a_new_plan(store: RunStore) -> None:
    store.add_session({"ending": "budget"})
    finish(store)
    store.add_session({"ending": "finished"})
    assert [s["ending"] for s in store.manifest()["sessions"]] == ["budget", "finished"]
    assert json.loads(store.manifest_file.read_text())["version"] == 1


def test_a_file_where_the_folder_should_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    with (
        pytest.raises(StoreError, match="a file is where a folder is needed"),
        RunStore(tmp_path / "run").working(),
    ):
        pass


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_half_way_leaves_nothing_behind(store: RunStore) -> None:
    before = records_of(store)
    more = toy_cells(rows=12, size=3, seed=5)
    with store.working(), file_size_limit(1000), pytest.raises(StoreError, match="size limit"):
        execute(more, store, LocalEngine(), toy_work(store.folder))
    assert not list(store.cells.glob(".tmp*"))
    assert records_of(store) == before


@contextmanager
def mounted(place: Path, *options: str) -> Iterator[Path]:
    """A small file system of its own, where this process may mount one."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", ",".join(options), "tmpfs", str(place)]
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a file system needs root")
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this container may not mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_said_so_and_what_was_there_stays(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=256k") as disk:
        store = RunStore(disk / "run")
        many = toy_cells(rows=400, size=4)
        with (
            pytest.raises(StoreError, match="the disk is full"),
            store.working(),
        ):
            store.write_manifest({}, many[:8])
            execute(many, store, LocalEngine(), toy_work(tmp_path / "cache"))
        assert len(store.records()) == 32
        left = len(missing(many, store))
        assert 0 < left < len(many)
        subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
        finish(store, many)
        assert len(store.records()) == 400


def test_a_read_only_folder_is_said_so_and_stays_readable(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=1m") as disk:
        store = RunStore(disk / "run")
        finish(store)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        with pytest.raises(StoreError, match="read-only"), store.working():
            pass
        with pytest.raises(StoreError, match="read-only"):
            store.write(CELLS[0], to_table(CELLS[0], [{"row": 1}]))
        assert len(records_of(store)) == 12


def test_records_must_be_flat_and_leave_the_identity_alone() -> None:
    with pytest.raises(StoreError, match="flat"):
        to_table(CELLS[0], [{"scores": [1, 2]}])
    with pytest.raises(StoreError, match="fills in by itself"):
        to_table(CELLS[0], [{"model": "mine"}])
    with pytest.raises(StoreError, match="one type per column"):
        to_table(CELLS[0], [{"a": 1}, {"a": "x"}])
    assert to_table(CELLS[0], []).num_rows == 0
    assert to_table(CELLS[0], pa.table({"a": [1]})).column_names == [*IDENTITY, "a"]


def test_tables_with_different_columns_are_joined_with_nulls() -> None:
    joined = join([to_table(CELLS[0], [{"a": 1}]), to_table(CELLS[1], [{"a": 0.5, "b": "x"}])])
    assert joined["a"].to_pylist() == [1.0, 0.5]
    assert joined["b"].to_pylist() == [None, "x"]
    assert join([]).num_rows == 0
