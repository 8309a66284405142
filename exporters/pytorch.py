"""PyTorch weights to ONNX: state dicts, pickled modules, TorchScript, safetensors, live modules.

A checkpoint is read without running anything it holds, fitted to one of our architectures and
traced by the TorchScript-based exporter: its graphs are smaller and older in opset than those of
the dynamo exporter, hence readable by more engines. Only the batch is dynamic.
"""

from __future__ import annotations

import logging
import tempfile
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path

import onnx
import torch
from torch import Tensor, nn

from onnxfr.errors import ModelError, UnsupportedModel
from onnxfr.exporters._torch_files import Checkpoint, read_container
from onnxfr.exporters.architectures.base import ARCHITECTURES, Architecture
from onnxfr.exporters.architectures.matching import Fit, detect_architecture, fit
from onnxfr.exporters.base import Exported, Size, exporter, head_of
from onnxfr.models.preprocessing import Preprocessing

__all__ = [
    "Checkpoint",
    "PytorchExport",
    "detect_architecture",
    "export_pytorch",
    "load_architecture",
    "read_checkpoint",
]

OPSET = 17
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PytorchExport:
    """A vendor-style ONNX model, float ``(N, 3, H, W)`` in, and what is known about it."""

    model: onnx.ModelProto
    input_size: tuple[int, int]
    embedding_dim: int
    architecture: str | None = None
    preprocessing: Preprocessing | None = None
    notes: tuple[str, ...] = ()


def read_checkpoint(path: Path) -> Checkpoint:
    """Return the tensors of a ``.pt/.pth/.ckpt``, TorchScript or safetensors file, by name."""
    return read_container(path)


def load_architecture(state: dict[str, Tensor], name: str | None = None) -> tuple[nn.Module, Fit]:
    """Build the network ``state`` belongs to, weights in place, in inference mode."""
    chosen = name or detect_architecture(state)
    if chosen is None:
        raise UnsupportedModel(
            f"no known architecture has these {len(state)} keys "
            f"({', '.join(list(state)[:4])}, ...); name one with --arch, "
            f"known are: {', '.join(ARCHITECTURES.names())}"
        )
    architecture = ARCHITECTURES.get(chosen)
    found = fit(state, architecture)
    if not found.complete:
        raise UnsupportedModel(f"the checkpoint is not of this architecture: {found.report()}")
    with torch.device("meta"):
        module = architecture.build()
    module.to_empty(device="cpu")
    counters = {
        key: torch.zeros_like(value)
        for key, value in module.state_dict().items()
        if key.endswith("num_batches_tracked")
    }
    module.load_state_dict(counters | {k: v.float() for k, v in found.state_dict.items()})
    return module.eval(), found


def export_pytorch(
    source: Path | nn.Module,
    arch: str | None = None,
    input_size: tuple[int, int] | None = None,
) -> PytorchExport:
    """Export a checkpoint file or a live module to ONNX.

    ``arch`` names the architecture of a checkpoint and is detected when absent; for a module it
    only lends its input size. ``input_size`` is (height, width), by default the architecture's,
    else 112x112.
    """
    architecture = ARCHITECTURES.get(arch) if arch else None
    notes: tuple[str, ...] = ()
    if isinstance(source, nn.Module):
        module = source
    else:
        checkpoint = read_checkpoint(source)
        module, found = load_architecture(checkpoint.state_dict, arch)
        architecture = ARCHITECTURES.get(found.architecture)
        notes = (*checkpoint.notes, found.report())
    size = input_size or (architecture.input_size if architecture else (112, 112))
    model = to_onnx(module, size, architecture)
    dim = model.graph.output[0].type.tensor_type.shape.dim[1].dim_value
    return PytorchExport(
        model=model,
        input_size=size,
        embedding_dim=dim,
        architecture=architecture.name if architecture else None,
        preprocessing=architecture.preprocessing if architecture else None,
        notes=notes,
    )


def to_onnx(
    module: nn.Module, size: tuple[int, int], architecture: Architecture | None = None
) -> onnx.ModelProto:
    """Trace ``module`` in inference mode; the caller's training flags are put back."""
    outputs = list(architecture.outputs) if architecture else ["embedding"]
    reference = next(module.parameters(), torch.empty(0))
    probe = torch.zeros(2, 3, *size, dtype=torch.float32, device=reference.device)
    training = {part: part.training for part in module.modules()}
    try:
        module.eval()
        with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
            warnings.simplefilter("ignore")
            target = Path(folder) / "model.onnx"
            torch.onnx.export(
                module,
                (probe,),
                target,
                opset_version=OPSET,
                input_names=["input"],
                output_names=outputs,
                dynamic_axes={name: {0: "N"} for name in ("input", *outputs)},
                dynamo=False,
            )
            model = onnx.load_model(target)
    except Exception as error:
        raise UnsupportedModel(
            f"the module cannot be traced for a {size[0]}x{size[1]} face: {error}"
        ) from error
    finally:
        for part, flag in training.items():
            part.training = flag
    return _checked(model)


def _checked(model: onnx.ModelProto) -> onnx.ModelProto:
    try:
        onnx.checker.check_model(model)
        inferred = onnx.shape_inference.infer_shapes(model)
    except onnx.checker.ValidationError as error:
        raise ModelError(f"the exported graph is not valid ONNX: {error}") from error
    rank = len(inferred.graph.output[0].type.tensor_type.shape.dim)
    if rank != 2:
        raise UnsupportedModel(
            f"expected a first output of (N, D), the module answers with {rank} axes; "
            "wrap it so that the embedding comes first"
        )
    logger.debug("exported %d nodes at opset %d", len(model.graph.node), OPSET)
    return inferred


def _recognises(path: Path) -> bool:
    start = head_of(path, 16)
    if start[:2] == b"PK":
        with zipfile.ZipFile(path) as archive:
            return any(name.rpartition("/")[2] == "data.pkl" for name in archive.namelist())
    pickled = start[:1] == b"\x80" and start[1:2] in b"\x02\x03\x04\x05"
    length = int.from_bytes(start[:8], "little")
    safetensors = start[8:9] == b"{" and length <= path.stat().st_size - 8
    return len(start) > 9 and (pickled or safetensors)


@exporter("pytorch", _recognises, ".pt, .pth, .ckpt, TorchScript or safetensors weights")
def _export_file(source: Path, arch: str | None = None, input_size: Size | None = None) -> Exported:
    made = export_pytorch(source, arch, input_size)
    return Exported(made.model, "pytorch", made.architecture, made.preprocessing, notes=made.notes)
