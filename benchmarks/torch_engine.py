"""Forward and backward to the input: our graph against the original module and onnx2torch.

Run: python benchmarks/torch_engine.py [--threads 1] [--batch 8] [--rounds 7]

Networks have random weights; every contender is frozen, in evaluation mode, and timed in turn in
one run. Ratios above 1 mean that ours is faster.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch

from onnxfr.exporters.architectures import ARCHITECTURES
from onnxfr.exporters.pytorch import export_pytorch
from onnxfr.models.admission import admit
from onnxfr.models.second_opinion import second_opinion
from onnxfr.models.wrapper import load_model

NAMES = (
    "iresnet18",
    "iresnet50",
    "ir_se_50",
    "mobilefacenet_foamliu",
    "mobilefacenet_112x96",
    "mobilenet_v2",
    "shufflenet_v2",
    "inception_resnet_v1",
    "vit_s",
    "edgeface_xxs",
)


def seconds(forward: torch.nn.Module, images: torch.Tensor) -> float:
    variable = images.clone(memory_format=torch.preserve_format).requires_grad_(True)
    begin = time.perf_counter()
    torch.autograd.grad(forward(variable)[:, 0].sum(), variable)
    return time.perf_counter() - begin


def measure(name: str, batch: int, rounds: int) -> dict[str, float | str | None]:
    architecture = ARCHITECTURES.get(name)
    torch.manual_seed(0)
    module = architecture.build().eval().requires_grad_(False)
    size = architecture.input_size
    with tempfile.TemporaryDirectory() as folder:
        exported = export_pytorch(module, arch=name)
        path = Path(folder) / "net.onnx"
        path.write_bytes(exported.model.SerializeToString())
        admit(path, Path(folder) / "model", preprocess="rgb,0-1")
        ours = load_model(Path(folder) / "model")
        images = torch.rand(batch, 3, *size)
        ours.embed_grad(images)
        other = second_opinion(ours.graph()).module

        def original(x: torch.Tensor) -> torch.Tensor:
            answer = module(x)
            rows = answer[0] if isinstance(answer, tuple) else answer
            return torch.nn.functional.normalize(rows)

        contenders = {"ours": ours.embed_grad, "original": original}
        if other is not None:
            contenders["onnx2torch"] = other
        times: dict[str, list[float]] = {key: [] for key in contenders}
        for k in range(rounds + 1):
            for key, forward in contenders.items():
                spent = seconds(forward, images)
                if k:
                    times[key].append(spent)
    fast = {key: statistics.median(values) for key, values in times.items()}
    ratio = {key: fast[key] / fast["ours"] for key in fast}
    return {
        "model": name,
        "ms_per_image": 1000 * fast["ours"] / batch,
        "vs_original": ratio["original"],
        "vs_onnx2torch": ratio.get("onnx2torch"),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path)
    parser.add_argument("names", nargs="*", default=NAMES)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = []
    print("| model | ms/image | vs original module | vs onnx2torch |\n|---|---|---|---|")
    for name in options.names:
        row = measure(name, options.batch, options.rounds)
        rows.append(row)
        other = f"{row['vs_onnx2torch']:.2f} ×" if row["vs_onnx2torch"] else "does not convert"
        print(
            f"| {name} | {row['ms_per_image']:.1f} | {row['vs_original']:.2f} × | {other} |",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
