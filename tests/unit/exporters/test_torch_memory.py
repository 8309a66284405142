"""A small weight file cannot make reading it take gigabytes before it is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from onnxfr.errors import UnsafeFile
from onnxfr.exporters import _torch_specs
from onnxfr.exporters._torch_specs import StorageSpec, TensorSpec
from onnxfr.exporters.pytorch import read_checkpoint


def stored(*numbers: float, dtype: torch.dtype = torch.float32) -> StorageSpec:
    return StorageSpec("0", dtype, len(numbers), torch.tensor(numbers, dtype=dtype))


def test_views_of_one_int8_tensor_are_counted_before_any_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    real = _torch_specs._dequantise

    def counted(raw: torch.Tensor, quantiser: tuple[object, ...]) -> torch.Tensor:
        made.append(raw.shape)
        return real(raw, quantiser)

    monkeypatch.setattr(_torch_specs, "_dequantise", counted)
    numbers = torch.quantize_per_tensor(torch.zeros(1 << 20), 0.1, 0, torch.qint8)
    path = tmp_path / "many.pt"
    torch.save({f"l{k}.weight": numbers.view(1 << 10, 1 << 10) for k in range(8)}, path)
    with pytest.raises(UnsafeFile, match="claim to hold 33554432 bytes"):
        read_checkpoint(path)
    assert made == []


def test_scales_of_more_channels_than_there_are_do_not_multiply_a_tensor() -> None:
    scales = TensorSpec(stored(1.0, 2.0, 3.0), 0, (3,), (1,))
    raw = stored(*range(4), dtype=torch.int8)
    quantiser = ("per_channel_affine", scales, scales, 1)
    with pytest.raises(UnsafeFile, match="1 channels are quantised by 3 scales"):
        TensorSpec(raw, 0, (4, 1), (1, 1), quantiser=quantiser).materialise()
