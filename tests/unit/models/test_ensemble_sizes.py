from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx

from onnxfr.models.admission import admit
from onnxfr.models.ensemble import Ensemble
from onnxfr.models.wrapper import load_model


def test_members_of_other_sizes_see_the_pictures_as_they_are(
    make_vendor_net: Callable[..., onnx.ModelProto], tmp_path: Path
) -> None:
    """Cut to the first member's size first, the second would see another picture than alone."""
    members = []
    for size in ((32, 24), (32, 32)):
        path = tmp_path / f"{size[1]}.onnx"
        path.write_bytes(make_vendor_net(size=size).SerializeToString())
        admit(path, tmp_path / path.stem, preprocess="rgb,0-1")
        members.append(load_model(tmp_path / path.stem, threads=1))
    together = Ensemble(members, (0.0, 0.0))
    left, right = np.random.default_rng(0).random((2, 3, 3, 32, 32), dtype=np.float32)
    cosine = (together.embed(left) * together.embed(right)).sum(axis=1)
    np.testing.assert_allclose(together.similarity(left, right), cosine, atol=1e-6)
