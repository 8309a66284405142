from __future__ import annotations

import io
import os
import pickle
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from onnxfr.data.bin import _block
from onnxfr.data.images import load_pixels
from onnxfr.data.pairs import open_pairs
from onnxfr.data.unpickle import read_pack
from onnxfr.errors import DataError, UnsafeFile

PICTURES = [b"one\xff\xd8", b"two", b"one\xff\xd8", b"three"]
SAME = [True, False]


def jpeg(grey: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (112, 112), (grey, grey, grey)).save(out, "JPEG")
    return out.getvalue()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("images", [list, tuple, lambda p: [np.frombuffer(b, np.uint8) for b in p]])
@pytest.mark.parametrize(
    "flags",
    [list, tuple, np.array, lambda s: [np.bool_(x) for x in s], lambda s: np.array(s).astype(int)],
)
def test_every_real_shape_of_a_pack_is_read(
    protocol: int,
    images: Callable[[list[bytes]], object],
    flags: Callable[[list[bool]], object],
) -> None:
    blob = pickle.dumps((images(PICTURES), flags(SAME)), protocol)
    assert read_pack(blob, "x.bin") == (PICTURES, SAME)


def test_a_pack_written_by_python_2_is_read() -> None:
    blob = b"\x80\x02]q\x00(U\x03\xff\xd8aU\x02bce]q\x01\x88a\x86q\x02."
    assert read_pack(blob, "x.bin") == ([b"\xff\xd8a", b"bc"], [True])
    text = b"((lp0\nS'ab\\xff'\np1\naS'c'\naI01\ntp2\n."
    with pytest.raises(DataError):
        read_pack(text, "x.bin")
    text = b"((lp0\nS'ab\\xff'\np1\naS'c'\na(lp2\nI01\natp3\n."
    assert read_pack(text, "x.bin") == ([b"ab\xff", b"c"], [True])


class Hostile:
    """Reduces to a call; ``call`` is chosen per test."""

    def __init__(self, call: tuple[object, ...]) -> None:
        self.call = call

    def __reduce__(self) -> tuple[object, ...]:
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("kind", ["system", "open", "eval", "getattr", "numpy"])
def test_hostile_packs_are_refused_and_do_not_run(tmp_path: Path, protocol: int, kind: str) -> None:
    trace = tmp_path / "ran"
    calls: dict[str, tuple[object, ...]] = {
        "system": (os.system, (f"touch {trace}",)),
        "open": (open, (str(trace), "w")),
        "eval": (eval, (f"open({str(trace)!r}, 'w')",)),
        "getattr": (getattr, (Path(trace), "touch")),
        "numpy": (np.save, (str(trace), np.zeros(1, np.uint8))),
    }
    blob = pickle.dumps(([Hostile(calls[kind])], [True]), protocol)
    path = tmp_path / "evil.bin"
    path.write_bytes(blob)
    with pytest.raises(UnsafeFile, match=r"evil\.bin"):
        open_pairs(f"bin:{path}")
    assert not trace.exists()
    if kind == "open":
        pickle.loads(blob)
        assert trace.exists(), "the pack was harmless, so the test proved nothing"


@pytest.mark.parametrize(
    "blob",
    [
        b"\x80\x02cos\nsystem\n(S'true'\ntR.",
        b"(S'true'\nios\nsystem\n.",  # INST
        b"(cos\nsystem\nS'true'\no.",  # OBJ
        b"\x80\x02c_codecs\nencode\n)\x81.",  # NEWOBJ
        b"\x80\x02\x82\x01.",  # EXT1
        b"Pid\n.",  # PERSID
        b"\x80\x04\x8c\x02os\x8c\x06system\x93.",  # STACK_GLOBAL
        b"\x80\x02c_codecs\nlookup\n.",
        b"\x80\x02c_codecs\nencode\n(X\x01\x00\x00\x00aX\x03\x00\x00\x00rottR.",
        b"\x80\x02c_codecs\nencode\nN}X\x05\x00\x00\x00_leftK\x01s\x86b.",  # BUILD on a stand-in
        b"\x80\x02cnumpy\ndtype\n(U\x02O8\x89\x88tR.",
        b"\x80\x05\x97.",  # NEXT_BUFFER
    ],
)
def test_instructions_outside_the_list_are_refused(blob: bytes) -> None:
    with pytest.raises(UnsafeFile):
        read_pack(blob, "x.bin")


def test_the_admitted_names_cannot_be_altered() -> None:
    alter = b"\x80\x02cnumpy\ndtype\nN(X\x01\x00\x00\x00aK\x01t\x86b."
    with pytest.raises((DataError, UnsafeFile)):
        read_pack(alter, "x.bin")
    blob = pickle.dumps((PICTURES, np.array(SAME)), 3)
    assert read_pack(blob, "x.bin") == (PICTURES, SAME)


def test_encoded_bytes_cannot_outgrow_the_file() -> None:
    text = b"X" + struct.pack("<I", 1000) + b"a" * 1000
    call = b"c_codecs\nencode\nq\x01(" + text + b"q\x02X\x06\x00\x00\x00latin1tq\x03R"
    again = b"h\x01h\x03R" * 50
    with pytest.raises(UnsafeFile, match="more bytes than the file holds"):
        read_pack(b"\x80\x02(" + call + again + b"t.", "x.bin")


@pytest.mark.parametrize(
    "blob",
    [
        b"r\xff\xff\xff\xff.",  # memo place four thousand million
        b"\x80\x05\x96" + struct.pack("<Q", 2**40) + b".",  # byte array of a terabyte
        b"\x80\x04\x8e" + struct.pack("<Q", 2**40) + b".",
        b"\x80\x04\x95" + struct.pack("<Q", 2**40) + b".",
    ],
)
def test_absurd_sizes_cost_no_memory(blob: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises((DataError, UnsafeFile)):
            read_pack(b"N" + blob if blob[:1] == b"r" else blob, "x.bin")
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
@example(b"")
@example(pickle.dumps((PICTURES, SAME))[:-5])
@example(pickle.dumps({"a": 1}))
@example(pickle.dumps(([1, 2], [True])))
@example(pickle.dumps((PICTURES, [2, 3])))
@example(pickle.dumps((PICTURES, ["yes"])))
def test_any_bytes_give_plain_values_or_a_typed_error(blob: bytes) -> None:
    try:
        pictures, same = read_pack(blob, "x.bin")
    except (DataError, UnsafeFile):
        return
    assert all(type(picture) is bytes for picture in pictures)
    assert all(type(flag) is bool for flag in same)


def test_pairs_of_a_pack(tmp_path: Path) -> None:
    blobs = [jpeg(grey) for grey in (10, 20, 10, 30, 40, 40, 20, 10)]
    path = tmp_path / "agedb_30.bin"
    path.write_bytes(pickle.dumps((blobs, [True, False, True, True])))
    pairs = open_pairs(f"bin:{path}")
    assert pairs.name == "agedb_30"
    assert pairs.pair_ids() == ["#000000|#000001", "#000000|#000003"]
    assert pairs.aligned is True
    assert len(pairs.images) == 3
    assert load_pixels(pairs.images[1])[0, 0].tolist() == [20, 20, 20]
    assert [problem.name for problem in pairs.problems] == ["#000004|#000004", "#000001|#000000"]
    path.write_bytes(pickle.dumps((blobs[:3], [True, False])))
    with pytest.raises(DataError, match="two pictures per flag"):
        open_pairs(f"bin:{path}")


@pytest.mark.parametrize("total", [3, 10, 6000, 6007])
def test_folds_are_the_ten_consecutive_blocks(total: int) -> None:
    folds = [_block(k, total) for k in range(total)]
    blocks = [len(part) for part in np.array_split(np.arange(total), 10)]
    assert np.bincount(folds, minlength=10).tolist() == blocks
    assert folds == sorted(folds)
