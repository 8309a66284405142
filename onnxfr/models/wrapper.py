"""FRModel: one card, two engines behind one contract.

``embed`` answers through onnxruntime, ``embed_grad`` through the same graph as a differentiable
torch module. There is no preprocessing here: it is part of the normal form. Both resize by one
function.
"""

from __future__ import annotations

import shlex
import threading
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import fx

from onnxfr.errors import (
    CardError,
    DataError,
    ModelError,
    NotDifferentiable,
    UnreadableModel,
    UnsafeFile,
    UnsupportedModel,
)
from onnxfr.models.card import CARD_FILE, MODEL_FILE, Card, read_card
from onnxfr.models.geometry import fit, fit_array
from onnxfr.models.graph import to_torch
from onnxfr.models.memory import keep_freed_memory
from onnxfr.models.ort import OrtEngine
from onnxfr.models.store import file_digest
from onnxfr.models.torch_layout import lay_out_fastest
from onnxfr.models.upcast import upcast_half
from onnxfr.paths import cache_dir, expanded
from onnxfr.types import Embeddings, Images


class FRModel(ABC):
    """What every face-recognition model is to the rest of onnxfr."""

    card: Card

    @property
    def name(self) -> str:
        """The card's name."""
        return self.card.name

    @property
    @abstractmethod
    def differentiable(self) -> bool:
        """Whether ``embed_grad`` works."""

    @abstractmethod
    def embed(self, images: Images) -> Embeddings:
        """Embed a batch of any picture size through the fast engine."""

    @abstractmethod
    def embed_grad(self, images: torch.Tensor) -> torch.Tensor:
        """Embed a batch through the differentiable engine; gradients reach ``images``."""

    def similarity(self, left: Images, right: Images) -> NDArray[np.float32]:
        """Return the cosine of each pair of pictures."""
        if len(left) != len(right):
            raise DataError(
                f"expected as many left as right pictures, got {len(left)}, {len(right)}"
            )
        both = self.embed(
            np.concatenate([fit_array(x, self.card.input_size) for x in (left, right)])
        )
        scores: NDArray[np.float32] = np.einsum("nd,nd->n", both[: len(left)], both[len(left) :])
        return scores


class OnnxModel(FRModel):
    """A model in normal form on disk; each engine is built when it is first needed."""

    def __init__(self, folder: Path, *, device: str = "auto", threads: int | None = None) -> None:
        self.folder = folder
        self.card = read_card(folder / CARD_FILE)
        self._path = folder / MODEL_FILE
        if not self._path.is_file():
            raise CardError(f"{folder} has a card but no {MODEL_FILE}; import the model again")
        found = file_digest(self._path)
        if found != self.card.sha256:
            raise CardError(
                f"{self._path} is not the file its card describes: expected sha256 "
                f"{self.card.sha256[:12]}..., found {found[:12]}...; import the model again"
            )
        self._device = device
        self._threads = threads
        self._lock = threading.RLock()
        self._modules: dict[tuple[torch.dtype, torch.device], torch.nn.Module] = {}
        self._layouts: dict[tuple[torch.dtype, torch.device], torch.memory_format] = {}
        self._refusal: NotDifferentiable | None = None

    @cached_property
    def engine(self) -> OrtEngine:
        """The onnxruntime engine."""
        with self._lock:
            fixed = 1 if self.card.batch == "loop" else None
            device = "auto" if self._device == "auto" else self._device.split(":")[0]
            return OrtEngine(
                self._path,
                device=device,  # type: ignore[arg-type]
                threads=self._threads,
                fixed_batch=fixed,
            )

    @property
    def differentiable(self) -> bool:
        """Whether every operator has a differentiable form."""
        try:
            self.torch_module(torch.float32, torch.device("cpu"))
        except NotDifferentiable:
            return False
        return True

    def graph(self) -> onnx.ModelProto:
        """Return the normal-form graph, half precision read as float32."""
        return upcast_half(onnx.load(self._path))

    def torch_module(self, dtype: torch.dtype, device: torch.device) -> torch.nn.Module:
        """Return the differentiable graph in a number type and place, converted once."""
        with self._lock:
            if self._refusal is not None:
                raise self._refusal
            key = (dtype, device)
            if key not in self._modules:
                try:
                    most = 2 if self.card.batch == "dynamic" else 1
                    module = _converted(self.graph(), self.card.input_size, most)
                except NotDifferentiable as refusal:
                    self._refusal = refusal
                    raise
                keep_freed_memory()
                # A graph may compute part of itself in float64; nothing makes that part narrower.
                module = module.to(device) if dtype == torch.float32 else module.to(device, dtype)
                self._layouts[key] = torch.contiguous_format
                if dtype == torch.float32:
                    self._layouts[key] = lay_out_fastest(module, self.card, device)
                self._modules[key] = module
            return self._modules[key]

    def embed(self, images: Images) -> Embeddings:
        """Embed a batch of any size; rows have unit length."""
        return self.engine.run(fit_array(images, self.card.input_size))

    def embed_grad(self, images: torch.Tensor) -> torch.Tensor:
        """Embed a batch differentiably, in the number type and place of ``images``."""
        images = torch.as_tensor(images)
        module = self.torch_module(images.dtype, images.device)
        layout = self._layouts[(images.dtype, images.device)]
        fitted = fit(images, self.card.input_size).contiguous(memory_format=layout)
        if self.card.batch == "loop" and len(fitted) > 1:
            return torch.cat([module(picture[None]) for picture in fitted])
        embeddings: torch.Tensor = module(fitted)
        return embeddings


def _converted(graph: onnx.ModelProto, size: tuple[int, int], most: int) -> fx.GraphModule:
    """Return the differentiable form of a graph, or raise ``NotDifferentiable``.

    Args:
        graph: the network in normal form.
        size: of its pictures.
        most: how many it is tried with: torch joins less than onnxruntime does.
    """
    try:
        module = to_torch(graph)
    except (UnsupportedModel, UnreadableModel, UnsafeFile) as refusal:
        raise NotDifferentiable(f"the graph has no differentiable form: {refusal}") from refusal
    try:
        with torch.enable_grad():
            answer = module(torch.full((most, 3, *size), 0.5).requires_grad_(True))
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise NotDifferentiable(
            f"the graph has no differentiable form for {most} pictures at once: {reason}; the "
            "model stays usable for everything that needs scores or decisions only"
        ) from error
    if not answer.requires_grad:
        raise NotDifferentiable(
            "no gradient gets from the embedding to the picture, whole numbers are in between; the "
            "model stays usable for everything that needs scores or decisions only"
        )
    return module


def load_model(
    reference: str | Path, *, device: str = "auto", threads: int | None = None
) -> OnnxModel:
    """Load a model by its folder, its card, its normal-form file, or its name in the zoo cache."""
    path = expanded(reference)
    if path.is_dir() and (path / CARD_FILE).is_file():
        return OnnxModel(path, device=device, threads=threads)
    if path.is_file() and path.name in (CARD_FILE, MODEL_FILE):
        return OnnxModel(path.parent, device=device, threads=threads)
    named = model_folder(str(reference)) if str(reference) == path.name else None
    if named is not None and (named / CARD_FILE).is_file():
        return OnnxModel(named, device=device, threads=threads)
    if path.is_file():
        raise ModelError(
            f"{path} is a vendor's file, not yet in normal form; admit it first: "
            f"onnxfr import {shlex.quote(str(path))} -o DIR --data lfw:PATH"
        )
    raise ModelError(
        f"no model at {reference}: expected a folder made by 'onnxfr import', or the name of a "
        "model fetched with 'onnxfr zoo get'"
    )


def model_folder(name: str) -> Path:
    """Return where a zoo model of this name is kept."""
    return cache_dir() / "models" / name
