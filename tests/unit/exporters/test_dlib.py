"""The dlib reader: a tiny residual net against torch, hostile streams, and the real network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as f
from torch import Tensor

from onnxfr.errors import OnnxfrError, UnreadableModel, UnsupportedModel
from onnxfr.exporters import dlib as dlib_exporter
from onnxfr.exporters._dlib_stream import DlibReader, Layer
from onnxfr.exporters.dlib import export_dlib

TINY = Path(__file__).parents[2] / "golden" / "exporters" / "dlib" / "tiny.dat"


def layers_of(content: bytes) -> list[Layer]:
    reader = DlibReader(content, "tiny")
    reader.integer(), reader.text(), reader.real(), reader.real()
    kinds = dlib_exporter._kinds(reader)
    dlib_exporter._input_layer(reader)
    return [step for step in dlib_exporter._steps(reader, kinds) if step is not None]


def block(x: Tensor, parts: list[Layer], stride: int, pad: int) -> Tensor:
    """Two convolutions, each with its scale and shift, and a rectifier between."""
    arrays = [[torch.from_numpy(a.copy()) for a in p.arrays] for p in parts if p.arrays]
    x = f.conv2d(x, arrays[0][0], arrays[0][1], stride=stride, padding=pad)
    x = (x * arrays[1][0][:, None, None] + arrays[1][1][:, None, None]).relu()
    x = f.conv2d(x, arrays[2][0], arrays[2][1], padding=1)
    return x * arrays[3][0][:, None, None] + arrays[3][1][:, None, None]


def test_residual_blocks_tags_and_skips_compute_what_dlib_defines() -> None:
    made = export_dlib(TINY)
    count = np.arange(2 * 3 * 16 * 16)
    raw = ((count * count * 7 + count * 37) % 251).astype(np.float32).reshape(2, 3, 16, 16)
    steps = layers_of(TINY.read_bytes())
    first = [torch.from_numpy(a.copy()) for s in steps[:2] for a in s.arrays]
    means = torch.tensor([122.5, 117.25, 104.0])[:, None, None]
    x = f.conv2d((torch.from_numpy(raw) - means) / 256, first[0], first[1], stride=2, padding=1)
    x = (x * first[2][:, None, None] + first[3][:, None, None]).relu()
    x = f.max_pool2d(x, 3, 1, 1)
    x = (x + block(x, steps[4:9], 1, 1)).relu()
    main = block(x, steps[11:16], 2, 0)
    assert main.shape[1:] == (12, 3, 3)
    aside = f.avg_pool2d(x, 2)
    assert aside.shape[1:] == (8, 4, 4)
    grown = f.pad(main, (0, 1, 0, 1)) + f.pad(aside, (0, 0, 0, 0, 0, 4))
    pooled = grown.relu().mean((2, 3))
    expected = f.linear(pooled, torch.from_numpy(steps[-1].arrays[0].copy())).numpy()
    session = onnxruntime.InferenceSession(made.model.SerializeToString())
    answer = session.run(None, {"image": raw})[0]
    assert np.abs(answer - expected).max() < 1e-5


def test_what_the_file_implies_is_told() -> None:
    made = export_dlib(TINY)
    assert made.template == "dlib"
    assert made.preprocessing is not None
    assert (made.preprocessing.color, made.preprocessing.scaling) == ("rgb", "0-255")
    assert "0.6" in made.notes[0]
    with pytest.raises(UnsupportedModel, match="16x16"):
        export_dlib(TINY, None, (150, 150))


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"\x09" + bytes(9), "damaged"),
        (b"\x71\x01", "damaged"),
        (b"\x04\x00\x00\x00", "truncated"),
    ],
)
def test_lying_integers_are_refused(content: bytes, error: str) -> None:
    with pytest.raises(UnreadableModel, match=error):
        DlibReader(content, "evil").integer()


def test_numbers_are_read_as_dlib_writes_them() -> None:
    assert DlibReader(b"\x81\x05", "x").integer() == -5
    assert DlibReader(b"\x02\x2c\x01", "x").integer() == 300
    assert DlibReader(b"\x03\x0a\xd7\xa3\x81\x1c", "x").real() == pytest.approx(0.04)
    with pytest.raises(UnreadableModel, match="exponent"):
        DlibReader(b"\x01\x01\x04\x00\x00\x00\x40", "x").real()


def test_huge_tensors_are_refused_before_they_are_made() -> None:
    with pytest.raises(UnreadableModel, match="truncated"):
        DlibReader(b"\x01\x02" + b"\x04\x00\x00\x00\x40" * 4, "evil").tensor()


def test_bytes_after_the_network_are_refused(tmp_path: Path) -> None:
    (tmp_path / "long.dat").write_bytes(TINY.read_bytes() + b"more")
    with pytest.raises(UnreadableModel, match="after its network"):
        export_dlib(tmp_path / "long.dat")


def test_endless_nesting_is_refused(tmp_path: Path) -> None:
    (tmp_path / "deep.dat").write_bytes(TINY.read_bytes()[:29] + b"\x01\x02" * 100_000)
    with pytest.raises(OnnxfrError):
        export_dlib(tmp_path / "deep.dat")
