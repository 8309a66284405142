"""The fast engine: onnxruntime, batched, thread-safe, and set up by measurement.

A model is opened with graph optimisation on and never with custom operator libraries. How it uses
the cores is measured at first use and remembered (see ``ort_tuning``). Chunks bound the memory;
they change answers by no more than float rounding.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from onnxfr.errors import (
    DataError,
    EngineError,
    NonFiniteAnswer,
    OnnxfrWarning,
    UnreadableModel,
)
from onnxfr.models.dead_channels import drop_dead_channels
from onnxfr.models.hardware import cpu_model, instruction_set, int8_products_saturate, thread_budget
from onnxfr.models.int8 import is_quantised, may_saturate
from onnxfr.models.ort_session import (
    CUDA,
    Device,
    ask,
    installed_wheels,
    load_onnxruntime,
    open_session,
    signature_of,
)
from onnxfr.models.ort_tuning import Runner, Setting, SettingCache, Tuner, default_setting, in_lanes
from onnxfr.models.rewrites import fix_weights, split_prelu
from onnxfr.paths import cache_dir
from onnxfr.types import Embeddings, Images

log = logging.getLogger(__name__)

_CUDA_CHUNK = 64
_SIDE_WHERE_OPEN = 112


class OrtEngine:
    """One model served by onnxruntime: ``run(images) -> embeddings``.

    Attributes:
        device: ``"cpu"`` or ``"cuda"``, whichever really answers.
        instruction_set: the processor's extension that decides how products are computed.
        quantised: whether the graph computes in int8.
        warnings: what a reader of this model's results has to know.
        fixed_batch: the only batch size the model takes, or None.
    """

    def __init__(
        self,
        model: bytes | Path,
        *,
        device: Device = "auto",
        threads: int | None = None,
        fixed_batch: int | None = None,
    ) -> None:
        """Open a model.

        Args:
            model: the file or its contents; one float32 image input, one output (or ``embedding``).
            device: ``"auto"`` takes CUDA where it works and the processor otherwise.
            threads: cores that may be busy at once; ``ONNXFR_THREADS`` or all when left out.
            fixed_batch: feed batches of exactly this size; found by itself where the model says so.
        """
        self._cores = thread_budget(threads)
        self._lock = threading.RLock()
        self._sessions: dict[tuple[int, bool], Any] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._width: int | None = None
        self._wanted_device = device
        contents, proto = _read(model)
        self._key: dict[str, str | int] = {
            "model": hashlib.sha256(contents).hexdigest(),
            "cpu": cpu_model(),
            "onnxruntime": str(load_onnxruntime().__version__),
            "cores": self._cores,
            "fixed_batch": fixed_batch or 0,
        }
        self.instruction_set = instruction_set()
        self.quantised = is_quantised(proto)
        saturates = int8_products_saturate() and may_saturate(proto)
        self._config = {"session.x64quantprecision": "1"} if saturates else {}
        self._forms = _forms(contents, proto, may_split=not self.quantised)
        self._can_split = self._forms[True] is not self._forms[False]
        self.warnings = self._find_problems(saturates=saturates)

        known = SettingCache(cache_dir() / "ort").read(self._key, self._cores)
        first = known or default_setting(self._cores)
        session = self._session(first.threads, first.split_prelu)
        self.device = "cuda" if CUDA in session.get_providers() else "cpu"
        if device == "cuda" and self.device != "cuda":
            raise EngineError(
                "asked for CUDA, but onnxruntime answered with the processor; "
                "run `onnxfr doctor` to see what is missing"
            )
        self._signature = signature_of(session)
        self.fixed_batch = fixed_batch or self._signature.image_shape[0]
        self._setting = self._device_setting() if self.device == "cuda" else known

    @property
    def setting(self) -> Setting:
        """How the model is served; asking for it the first time may measure it."""
        with self._lock:
            if self._setting is None:
                self._setting = self._measure()
                SettingCache(cache_dir() / "ort").write(self._key, self._setting)
            # The session that serves from now on is open and holds its own copy.
            self._forms.clear()
            if self._pool is None and self._setting.lanes > 1:
                self._pool = ThreadPoolExecutor(self._setting.lanes, "onnxfr-lane")
            return self._setting

    @property
    def image_shape(self) -> tuple[int | None, ...]:
        """Channels, height and width of one image; None where the model leaves them open."""
        return self._signature.image_shape[1:]

    @property
    def width(self) -> int:
        """Length of one embedding, as answered rather than as declared."""
        with self._lock:
            if self._width is None:
                session = next(iter(self._sessions.values()))
                blank = np.zeros((self.fixed_batch or 1, *self._picture_shape()), np.float32)
                self._width = self._answer(session, blank).shape[1]
            return self._width

    def run(self, images: Images, *, allow_nonfinite: bool = False) -> Embeddings:
        """Embed a batch of any size; safe to call from several threads at once.

        Args:
            images: ``(N, 3, H, W)`` float32.
            allow_nonfinite: hand NaN and infinity back instead of raising.
        """
        self._check(images)
        embeddings = np.empty((len(images), self.width), dtype=np.float32)
        if len(images) == 0:
            return embeddings
        setting = self.setting
        session = self._session(setting.threads, setting.split_prelu)
        # Small batches are spread over all lanes rather than queued in one full chunk.
        chunk = self.fixed_batch or min(setting.chunk, -(-len(images) // setting.lanes))

        def embed(start: int) -> None:
            embeddings[start : start + chunk] = self._answer(session, images[start : start + chunk])

        starts = range(0, len(images), chunk)
        in_lanes(self._pool if len(starts) > 1 else None, embed, starts)
        if not allow_nonfinite:
            _check_finite(embeddings)
        return embeddings

    def _answer(self, session: Any, images: Images) -> Embeddings:
        bind = "cuda" if self.device == "cuda" else None
        missing = (self.fixed_batch or len(images)) - len(images)
        if missing:
            images = np.concatenate([images, np.repeat(images[-1:], missing, axis=0)])
        answer = ask(session, self._signature, images, bind=bind)
        return answer[: len(images) - missing]

    def _check(self, images: Images) -> None:
        if not isinstance(images, np.ndarray) or images.dtype != np.float32:
            came = getattr(images, "dtype", type(images).__name__)
            raise DataError(f"expected images as a float32 array in [0, 1], came {came}")
        expected = self.image_shape
        fits = images.ndim == 4 and all(
            size is None or size == came
            for size, came in zip(expected, images.shape[1:], strict=True)
        )
        if not fits:
            sizes = ", ".join("any" if size is None else str(size) for size in expected)
            raise DataError(f"expected images of shape (N, {sizes}), came {images.shape}")

    def _session(self, threads: int, split: bool) -> Any:
        with self._lock:
            key = (threads, split and self._can_split)
            if key not in self._sessions:
                self._sessions[key] = open_session(
                    self._forms[key[1]],
                    device=self._wanted_device,
                    threads=threads,
                    spin=threads == self._cores,
                    config=self._config,
                )
            return self._sessions[key]

    def _measure(self) -> Setting:
        def runner(threads: int, split: bool) -> Runner:
            session = self._session(threads, split)
            return lambda images: self._answer(session, images)

        tuner = Tuner(runner, self._picture_shape(), self._cores, self.fixed_batch)
        setting = tuner.tune(can_split=self._can_split)
        log.info("onnxruntime serves %s with %s", self._key["model"], setting)
        kept = self._session(setting.threads, setting.split_prelu)
        self._sessions = {key: s for key, s in self._sessions.items() if s is kept}
        return setting

    def _device_setting(self) -> Setting:
        return Setting(1, 1, self.fixed_batch or _CUDA_CHUNK, split_prelu=True)

    def _picture_shape(self) -> tuple[int, int, int]:
        channels, height, width = self.image_shape
        return channels or 3, height or _SIDE_WHERE_OPEN, width or _SIDE_WHERE_OPEN

    def _find_problems(self, *, saturates: bool) -> tuple[str, ...]:
        found = []
        if saturates:
            found.append(
                f"int8 weights on a processor without VNNI ({self.instruction_set}): onnxruntime's "
                "default byte products saturate here, so its exact mode is used; a deployment "
                "without that mode answers differently on such a processor"
            )
        wheels = [name for name, _ in installed_wheels()]
        if len(wheels) > 1:
            found.append(
                f"{' and '.join(wheels)} are installed together, which silently disables CUDA; "
                "run `onnxfr doctor` for the remedy"
            )
        for text in found:
            warnings.warn(text, OnnxfrWarning, stacklevel=3)
        return tuple(found)


def _read(model: bytes | Path) -> tuple[bytes, onnx.ModelProto]:
    try:
        if isinstance(model, bytes):
            return model, onnx.load_model_from_string(model)
        proto = onnx.load(model)
        return proto.SerializeToString(), proto
    except (OSError, DecodeError, ValueError, onnx.checker.ValidationError) as error:
        name = "the given bytes" if isinstance(model, bytes) else model
        raise UnreadableModel(f"expected an ONNX model, came {name}: {error}") from error


def _forms(contents: bytes, proto: onnx.ModelProto, *, may_split: bool) -> dict[bool, bytes]:
    """Return the model without and with split PRelus; the same object twice if there are none."""
    changed = fix_weights(proto) + drop_dead_channels(proto)
    plain = proto.SerializeToString() if changed else contents
    split = proto.SerializeToString() if may_split and split_prelu(proto) else plain
    return {False: plain, True: split}


def _check_finite(embeddings: Embeddings) -> None:
    finite = np.isfinite(embeddings).all(axis=1)
    if finite.all():
        return
    rows = np.flatnonzero(~finite)
    listed = ", ".join(map(str, rows[:10])) + (", ..." if len(rows) > 10 else "")
    raise NonFiniteAnswer(
        f"expected finite embeddings, came NaN or infinity in {len(rows)} of {len(embeddings)} "
        f"rows ({listed}); check the images for NaN and the model with `onnxfr check`"
    )
