"""Which exports of which architectures become a differentiable graph: ours against onnx2torch.

Run: python benchmarks/coverage.py [--architectures iresnet18 ...] [--torchscript 9 ...]
    [--dynamo 18 ...] [--rows rows.jsonl] [--write docs/operators.md]

Every architecture is exported by both of torch's exporters to several opsets, with random weights
and random BatchNorm statistics. A file counts as covered if it converts, gives onnxruntime's
embeddings (1e-4 on unit vectors, batch 1 and 3) and if its gradient is right: ours against float64
finite differences of itself, onnx2torch's against ours.
"""

from __future__ import annotations

import argparse
import json
import logging
import tempfile
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import nn

from onnxfr.exporters.architectures import ARCHITECTURES
from onnxfr.models.graph import to_torch
from onnxfr.models.graph.rules import OPERATORS, discover
from onnxfr.models.second_opinion import second_opinion

NAMES = (
    "iresnet18",
    "iresnet50",
    "ir_se_50",
    "mobilefacenet",
    "mobilenet",
    "mobilenet_v2",
    "mobilenet_v3",
    "shufflenet_v1",
    "shufflenet_v2",
    "ghostnet",
    "efficientnet_b0",
    "inception_resnet_v1",
    "openface_nn4_small2",
    "sphere20",
    "vit_s",
    "edgeface_xxs",
)
TORCHSCRIPT, DYNAMO = (9, 11, 13, 17, 18, 20), (18, 20, 22, 23, 24)
Row = dict[str, object]
BEGIN, END = "<!-- coverage table -->", "<!-- end of coverage table -->"


def random_network(name: str) -> nn.Module:
    """Return a network whose signal neither dies nor explodes, as a trained one's does not.

    BatchNorm statistics are those of random images, then shaken; with torch's defaults the gradient
    of a MobileNet is 1e-10 and no finite difference can check it.
    """
    torch.manual_seed(0)
    entry = ARCHITECTURES.get(name)
    module: nn.Module = entry.build()
    norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = 1.0
    with torch.no_grad():
        module.train()(torch.rand(8, 3, *entry.input_size))
    for norm in norms:
        assert norm.running_mean is not None and norm.running_var is not None
        norm.running_mean.add_(0.1 * norm.running_var.sqrt() * torch.randn_like(norm.running_mean))
        norm.running_var.mul_(torch.empty_like(norm.running_var).uniform_(0.7, 1.3)).add_(1e-6)
    return module.eval().requires_grad_(False)


def export(module: nn.Module, size: tuple[int, int], dynamo: bool, opset: int) -> onnx.ModelProto:
    image = torch.rand(2, 3, *size)
    batch = torch.export.Dim("batch", min=1, max=4096)
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        path = Path(folder) / "network.onnx"
        torch.onnx.export(
            module,
            (image,),
            path,
            input_names=["image"],
            opset_version=opset,
            dynamo=dynamo,
            dynamic_shapes=[{0: batch}] if dynamo else None,
            dynamic_axes=None if dynamo else {"image": {0: "batch"}},
            verbose=False,
        )
        return onnx.load(path)


def unit(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def gradient(module: nn.Module, image: torch.Tensor) -> torch.Tensor:
    variable = image.clone().requires_grad_(True)
    return torch.autograd.grad(module(variable).sum(), variable)[0]


def right_answers(module: nn.Module, model: onnx.ModelProto, size: tuple[int, int]) -> bool:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    for batch in (1, 3):
        image = torch.rand(batch, 3, *size)
        want = unit(session.run(None, {session.get_inputs()[0].name: image.numpy()})[0])
        if np.abs(unit(module(image).numpy()) - want).max() > 1e-4:
            return False
    return True


def true_gradient(model: onnx.ModelProto, size: tuple[int, int]) -> bool:
    module, image = to_torch(model).double(), torch.rand(1, 3, *size, dtype=torch.float64)
    way = torch.randn(image.shape, dtype=torch.float64)
    step = 1e-8 * way
    with torch.no_grad():
        numeric = float(module(image + step).sum() - module(image - step).sum()) / 2e-8
    exact = float((gradient(module, image) * way).sum())
    return abs(exact - numeric) <= 1e-3 * max(abs(numeric), 1e-6)


def judge(model: onnx.ModelProto, size: tuple[int, int]) -> dict[str, str]:
    """Return 'ok' or what went wrong, for ours and for onnx2torch."""
    torch.manual_seed(1)
    result = {}
    try:
        ours = to_torch(model)
        answers = right_answers(ours, model, size)
        slope = true_gradient(model, size)
        wrong = "gradient differs" if answers else "embedding differs"
        result["ours"] = "ok" if answers and slope else wrong
    except Exception as error:
        result["ours"] = f"{type(error).__name__}: {error}"
        return {**result, "onnx2torch": "not tried"}
    opinion = second_opinion(model)
    if opinion.module is None:
        return {**result, "onnx2torch": opinion.why}
    try:
        image = torch.rand(1, 3, *size)
        pair = [gradient(module, image).flatten().double() for module in (ours, opinion.module)]
        close = float(torch.cosine_similarity(pair[0], pair[1], 0)) > 0.999
        good = right_answers(opinion.module, model, size) and close
        result["onnx2torch"] = "ok" if good else "answers differ"
    except Exception as error:
        result["onnx2torch"] = f"{type(error).__name__}: {error}"
    return result


def measure(name: str, module: nn.Module, dynamo: bool, opset: int) -> Row:
    size = ARCHITECTURES.get(name).input_size
    row: Row = {"architecture": name, "dynamo": dynamo, "opset": opset}
    try:
        model = export(module, size, dynamo, opset)
    except Exception as error:
        return {**row, "export": f"{type(error).__name__}: {str(error)[:120]}"}
    row["written"] = next(o.version for o in model.opset_import if o.domain == "")
    return {**row, **judge(model, size)}


def measure_all(names: list[str], plan: list[tuple[bool, int]], rows: Path | None) -> list[Row]:
    """Measure what the file of rows does not hold yet, adding to it row by row."""
    known = rows.read_text().splitlines() if rows is not None and rows.exists() else []
    found: list[Row] = [json.loads(line) for line in known]
    done = {(row["architecture"], row["dynamo"], row["opset"]) for row in found}
    for name in names:
        missing = [(dynamo, opset) for dynamo, opset in plan if (name, dynamo, opset) not in done]
        module = random_network(name) if missing else nn.Identity()
        for dynamo, opset in missing:
            row = measure(name, module, dynamo, opset)
            print(json.dumps(row)[:300], flush=True)
            found.append(row)
            if rows is not None:
                with rows.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    return found


def table(rows: list[Row]) -> str:
    """Show which opsets each converter covers; files that torch could not export are left out."""
    lines = [
        "| architecture | exporter | opsets | ours | onnx2torch |",
        "|---|---|---|---|---|",
    ]
    done = {"ours": 0, "onnx2torch": 0}
    tried = [row for row in rows if "ours" in row]
    tried.sort(key=lambda row: (str(row["architecture"]), int(str(row["opset"]))))
    for name in dict.fromkeys(row["architecture"] for row in tried):
        for dynamo in (False, True):
            some = [r for r in tried if r["architecture"] == name and r["dynamo"] == dynamo]
            if not some:
                continue
            cells = []
            for who in ("ours", "onnx2torch"):
                good = [str(row["opset"]) for row in some if row[who] == "ok"]
                done[who] += len(good)
                every = len(good) == len(some)
                cells.append("all" if every else ", ".join(good) if good else "none")
            opsets = ", ".join(str(row["opset"]) for row in some)
            exporter = "dynamo" if dynamo else "TorchScript"
            lines.append(f"| {name} | {exporter} | {opsets} | {cells[0]} | {cells[1]} |")
    total = len(tried)
    shares = [f"{count} of {total} ({count / total:.0%})" for count in done.values()]
    lines.append(f"| **all files** | | {total} | **{shares[0]}** | {shares[1]} |")
    return "\n".join(lines)


def operator_list() -> str:
    """List every operator with the versions from which its rules are in force."""
    discover()
    lines = ["| operator | domain | rules from version |", "|---|---|---|"]
    for (domain, name), versions in sorted(OPERATORS.items()):
        since = ", ".join(str(version) for version in sorted(versions))
        lines.append(f"| {name} | {domain or 'ai.onnx'} | {since} |")
    return "\n".join(lines)


def fill(text: str, begin: str, end: str, content: str) -> str:
    before, rest = text.split(begin)
    return f"{before}{begin}\n{content}\n{end}{rest.split(end)[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--architectures", nargs="+", default=list(NAMES))
    parser.add_argument("--torchscript", nargs="*", type=int, default=list(TORCHSCRIPT))
    parser.add_argument("--dynamo", nargs="*", type=int, default=list(DYNAMO))
    parser.add_argument("--rows", type=Path, help="keep the rows here and go on where it ends")
    parser.add_argument("--write", type=Path, help="put table and operator list into this document")
    parser.add_argument("--operators-only", action="store_true", help="refresh the list alone")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    text = arguments.write.read_text() if arguments.write else ""
    if not arguments.operators_only:
        plan = [(False, v) for v in arguments.torchscript] + [(True, v) for v in arguments.dynamo]
        rows = measure_all(arguments.architectures, plan, arguments.rows)
        print(table(rows))
        if arguments.write:
            text = fill(text, BEGIN, END, table(rows))
    if arguments.write:
        begin, end = "<!-- operator list -->", "<!-- end of operator list -->"
        arguments.write.write_text(fill(text, begin, end, operator_list()))


if __name__ == "__main__":
    main()
