"""Every failure a user can cause or meet, as one tree.

Each message says what was expected, what came, and what to do. The command line turns any
``OnnxfrError`` into one line and its ``exit_code``; a traceback always means a bug of ours.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec


class OnnxfrError(Exception):
    """Root of all errors raised on purpose."""

    exit_code = 2


class OnnxfrWarning(UserWarning):
    """Something a careful user wants to know although the work goes on."""


class ModelError(OnnxfrError):
    """A model file cannot be used as asked."""


class UnreadableModel(ModelError):
    """Not an ONNX file, truncated, or violating the ONNX specification."""


class UnsafeFile(OnnxfrError):
    """A file that reaches outside its folder, runs code when read, or claims an absurd size."""


class UnsupportedModel(ModelError):
    """A valid ONNX file that is no face-recognition network we can serve."""


class NotDifferentiable(ModelError):
    """A network whose gradient cannot be had; scores and decisions still work."""


class UnsupportedOperator(NotDifferentiable):
    """The differentiable engine has no rule for one operator."""

    def __init__(self, operator: str, version: int, node: str, why: str = "") -> None:
        self.operator, self.version, self.node = operator, version, node
        reason = f": {why}" if why else ""
        super().__init__(
            f"no differentiable form of operator {operator} (opset {version}, node {node!r})"
            f"{reason}; the model stays usable for everything that needs scores or decisions only"
        )


class AmbiguousPreprocessing(ModelError):
    """The data could not tell which preprocessing the model expects."""


class CardError(OnnxfrError):
    """A model card is missing, malformed, or contradicts its file."""


class EngineError(OnnxfrError):
    """An inference engine is missing, broken, or answered nonsense such as NaN."""


class NonFiniteAnswer(EngineError):
    """A network answered NaN or infinity to some pictures of a batch."""


class DataError(OnnxfrError):
    """A data set, image or pair list cannot be used."""


class PictureTooLarge(DataError):
    """A picture whose header announces more pixels than are ever read."""


class MetricError(OnnxfrError):
    """A metric is not defined for the numbers given: an empty class, NaN, lengths that differ."""


class AlignmentError(OnnxfrError):
    """The aligner cannot work: no detector, or an impossible template."""


class DownloadError(OnnxfrError):
    """A file could not be fetched from its package registry, or arrived altered."""


class LicenceError(OnnxfrError):
    """The weights' licence must be accepted explicitly first."""


class SpecError(OnnxfrError):
    """A run specification or an option is not valid."""


class StoreError(OnnxfrError):
    """Results could not be written or read back: full disk, read-only folder, damaged shard."""


class MissingExtra(OnnxfrError):
    """An optional dependency is needed for what was asked."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is needed for this: pip install 'onnxfr[{extra}]'")


class MissingCodec(OnnxfrError):
    """This build of OpenCV cannot write or read a picture or video format."""


class UnknownName(OnnxfrError):
    """A name that no registry holds."""


class DuplicateName(OnnxfrError):
    """Two things registered under one name."""


class AccessDenied(OnnxfrError):
    """An attack asked for more than it may: a score from a yes/no verifier, a gradient of none."""


class AttackError(OnnxfrError):
    """An attack cannot be run as asked: a norm it has no form for, or material it needs."""


class RemoteError(OnnxfrError):
    """A verifier over the network cannot be asked, or answers what its adapter does not explain."""


class NotAuthorised(RemoteError):
    """A service that is not this machine's own is asked only on the user's word."""


class CodeError(OnnxfrError):
    """An attack, an evaluator or another file that anybody may add raised what it should not."""


@contextmanager
def naming(what: str, module: str) -> Iterator[None]:
    """Say of an error that is none of ours in whose code it arose: ``what``, defined in ``module``.

    The line is the last of that module's own: an attack that asks a wrong question is told where it
    asked, not where deep below the answer failed.
    """
    try:
        yield
    except OnnxfrError:
        raise
    except Exception as error:
        place = _file_of(module)
        lines = [
            at.lineno for at in traceback.extract_tb(error.__traceback__) if at.filename == place
        ]
        where = f"{place}, line {lines[-1]}" if lines else place
        raise CodeError(
            f"unexpected {type(error).__name__}: {error}, in {what} ({where})"
        ) from error


def _file_of(module: str) -> str:
    loaded = sys.modules.get(module) or find_spec(module)
    return getattr(loaded, "__file__", None) or getattr(loaded, "origin", None) or module
