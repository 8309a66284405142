"""Weight files that run code, swell, lie or are damaged: a typed error, and nothing is run."""

from __future__ import annotations

import contextlib
import io
import pickle
import struct
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from onnxfr.errors import OnnxfrError, UnreadableModel, UnsafeFile
from onnxfr.exporters.pytorch import read_checkpoint


def small_network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 5))


def same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> bool:
    return found.keys() == expected.keys() and all(
        torch.equal(found[key], value) and found[key].dtype == value.dtype
        for key, value in expected.items()
    )


class Calls:
    """Pickles as a call of ``function`` with ``arguments``."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def as_file(payload: bytes, path: Path, container: str) -> Path:
    """Put a pickle where a checkpoint keeps its own."""
    if container == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", payload)
    elif container == "legacy":
        parts = [pickle.dumps(0x1950A86A20F9469CFC6C, 2), pickle.dumps(1001, 2)]
        parts += [pickle.dumps({"little_endian": True}, 2), payload, pickle.dumps([], 2)]
        path.write_bytes(b"".join(parts))
    else:
        path.write_bytes(payload)
    return path


@pytest.mark.parametrize("container", ["zip", "legacy", "pickle"])
@pytest.mark.parametrize("protocol", [2, 4])
def test_code_in_a_pickle_is_refused_and_not_run(
    tmp_path: Path, container: str, protocol: int
) -> None:
    import os
    import shutil

    marker = tmp_path / "ran"
    precious = tmp_path / "precious"
    precious.mkdir()
    attacks = [
        Calls(os.system, f"touch {marker}"),
        Calls(eval, f"open({str(marker)!r}, 'w')"),
        Calls(exec, f"open({str(marker)!r}, 'w')"),
        Calls(open, str(marker), "w"),
        Calls(shutil.rmtree, str(precious)),
        Calls(bytearray, 1 << 40),
    ]
    for attack in attacks:
        payload = pickle.dumps({"conv.weight": attack}, protocol)
        path = as_file(payload, tmp_path / "evil.pt", container)
        with pytest.raises(UnsafeFile):
            read_checkpoint(path)
    assert not marker.exists()
    assert precious.exists()


def test_foreign_modules_are_never_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = tmp_path / "imported"
    (tmp_path / "sly_module.py").write_text(
        f"open({str(marker)!r}, 'w')\ndef call(*a):\n    open({str(marker)!r}, 'w')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    payload = b"\x80\x02csly_module\ncall\nU\x01x\x85R."
    with pytest.raises(UnreadableModel):
        read_checkpoint(as_file(payload, tmp_path / "sly.pt", "zip"))
    assert not marker.exists()
    assert "sly_module" not in sys.modules


def test_our_own_functions_cannot_be_altered(tmp_path: Path) -> None:
    payload = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n}U\x08__code__U\x01xsb."
    with pytest.raises(UnsafeFile, match="alter"):
        read_checkpoint(as_file(payload, tmp_path / "sly.pt", "pickle"))


def test_attributes_do_not_overlay_methods(tmp_path: Path) -> None:
    class Overlay:
        def __reduce__(self) -> Any:
            return OrderedDict, (), {"items": 5, "keys": 5}, None, iter(state.items())

    state = small_network().state_dict()
    path = tmp_path / "overlay.pt"
    torch.save({"state_dict": Overlay()}, path)
    assert same(read_checkpoint(path).state_dict, state)


def storage_pickle(count: int, size: tuple[int, ...], stride: tuple[int, ...]) -> bytes:
    """Write a state dict of one float tensor with the given claims."""

    class Writer(pickle.Pickler):
        def persistent_id(self, obj: Any) -> Any:
            return ("storage", torch.FloatStorage, "0", "cpu", count) if obj == "here" else None

    import torch._utils

    stream = io.BytesIO()
    rebuild = torch._utils._rebuild_tensor_v2
    call = Calls(rebuild, "here", 0, size, stride, False, OrderedDict())
    Writer(stream, 2).dump({"weight": call})
    return stream.getvalue()


@pytest.mark.parametrize(
    ("count", "size", "stride"),
    [
        (1 << 40, (4,), (1,)),
        (4, (1 << 20, 1 << 20), (0, 0)),
        (4, (2, 4), (4, 1)),
        (4, (2,), (-1,)),
        (4, (1 << 62,), (1,)),
    ],
)
def test_claims_beyond_the_bytes_are_refused(
    tmp_path: Path, count: int, size: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    path = tmp_path / "forged.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", storage_pickle(count, size, stride))
        archive.writestr("archive/data/0", b"\0" * 16)
    with pytest.raises(UnsafeFile):
        read_checkpoint(path)


def test_a_forged_older_storage_is_refused(tmp_path: Path) -> None:
    parts = [pickle.dumps(0x1950A86A20F9469CFC6C, 2), pickle.dumps(1001, 2), pickle.dumps({}, 2)]
    parts += [storage_pickle(1 << 40, (4,), (1,)), pickle.dumps(["0"], 2)]
    path = tmp_path / "forged.pt"
    path.write_bytes(b"".join(parts) + struct.pack("<q", 1 << 40) + b"\0" * 16)
    with pytest.raises(UnsafeFile):
        read_checkpoint(path)


@pytest.mark.parametrize("payload", [b"\x80\x02}r\xff\xff\xff\x7f.", b"\x80\x04\x8e" + b"\x7f" * 8])
def test_opcodes_that_swell_are_refused(tmp_path: Path, payload: bytes) -> None:
    with pytest.raises((UnsafeFile, UnreadableModel)):
        read_checkpoint(as_file(payload, tmp_path / "swell.pt", "pickle"))


@pytest.mark.parametrize("name", ["../../escape", "/etc/cron.d/escape", "a\\..\\..\\b", "C:/x"])
def test_paths_that_leave_the_archive_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "slip.pt"
    torch.save({"weight": torch.ones(2)}, path)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, b"x")
    with pytest.raises(UnsafeFile, match="leaves"):
        read_checkpoint(path)


def test_a_zip_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}))
        archive.writestr("archive/data/0", b"\0" * (1 << 24))
    with pytest.raises(UnsafeFile, match="unpack"):
        read_checkpoint(path)


@pytest.mark.parametrize("content", [b"", b"hello world, no weights", b"PK\x03\x04", b"\x80"])
def test_other_files_are_named_unreadable(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.pt"
    path.write_bytes(content)
    with pytest.raises(UnreadableModel):
        read_checkpoint(path)
    with pytest.raises(UnreadableModel):
        read_checkpoint(tmp_path / "absent.pt")


def saved(zipped: bool) -> bytes:
    stream = io.BytesIO()
    torch.save(small_network(), stream, _use_new_zipfile_serialization=zipped)
    return stream.getvalue()


ZIPPED, LEGACY = saved(True), saved(False)


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), zipped=st.booleans())
def test_damage_gives_a_typed_error_or_weights(
    tmp_path: Path, data: st.DataObject, zipped: bool
) -> None:
    content = bytearray(ZIPPED if zipped else LEGACY)
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    path = tmp_path / "damaged.pt"
    path.write_bytes(bytes(content[: cut if data.draw(st.booleans()) else len(content)]))
    with contextlib.suppress(OnnxfrError):
        assert read_checkpoint(path).state_dict
