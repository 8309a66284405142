"""What a run is asked to do: a TOML file and command-line flags give the same validated object."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from onnxfr.errors import SpecError
from onnxfr.paths import expanded
from onnxfr.runs.toml_lines import line_of

Name = Annotated[str, Field(min_length=1)]
T = TypeVar("T", bound=BaseModel)

_FOLDERS = ("frost_photographs",)
"""Parameters of evaluators that can only be a place on disk."""
_NAMES_OR_FILES = ("landmarks", "surrogate")
"""Parameters of evaluators that are a place on disk where there is something, else a name."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class EvaluatorSpec(_Part):
    """One evaluator and its parameters."""

    name: Name
    params: dict[str, Any] = Field(default_factory=dict)


class EngineSpec(_Part):
    """Where cells run."""

    name: Literal["local", "ray"] = "local"
    workers: int | None = Field(default=None, ge=1)
    address: str | None = None
    gpus: float = Field(default=0.0, ge=0.0)
    """GPUs that one Ray task asks for; fractions share a GPU."""

    @model_validator(mode="after")
    def _address_means_ray(self) -> EngineSpec:
        if self.name == "local" and (self.address is not None or self.gpus):
            raise ValueError("address and gpus belong to the engine 'ray'")
        return self


class Settings(_Part):
    """What a suite may fix, and a specification override."""

    evaluators: tuple[EvaluatorSpec, ...] = ()
    seed: int = Field(default=0, ge=0, lt=2**63)
    protocol: Name = "ours"
    fmr: float = Field(default=1e-3, gt=0.0, lt=1.0)
    """The false-match rate at which thresholds are frozen on clean data."""
    max_pairs: int | None = Field(default=None, ge=1)
    """Draw this many pairs (balanced, seeded) from each data set; all by default."""
    rows_per_cell: int = Field(default=500, ge=1)
    strict: bool = False
    """Stop at the first unreadable picture instead of reporting it."""

    @model_validator(mode="after")
    def _each_evaluator_once(self) -> Self:
        names = [entry.name for entry in self.evaluators]
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"evaluator {twice[0]!r} is listed twice; merge its parameters")
        return self


class RunSpec(Settings):
    """A whole run."""

    models: tuple[Name, ...] = Field(min_length=1)
    data: tuple[Name, ...] = Field(min_length=1)
    suite: Name | None = None
    engine: EngineSpec = EngineSpec()

    @model_validator(mode="after")
    def _something_to_do(self) -> RunSpec:
        if self.suite is None and not self.evaluators:
            raise ValueError("name a suite (such as 'quick') or at least one evaluator")
        return self

    def to_json(self) -> dict[str, Any]:
        """Return the specification as plain JSON values."""
        return self.model_dump(mode="json")


class Suite(Settings):
    """A named protocol: what to evaluate, without saying on which model and data."""

    description: Name


def read_spec(path: Path) -> RunSpec:
    """Read a TOML specification; paths in it are relative to its folder."""
    text = read_text(path)
    content = _parse(text, path.name)
    spec = validate(RunSpec, content, source=path.name, text=text)
    return resolve(spec, path.parent)


def make_spec(content: Mapping[str, Any], folder: Path) -> RunSpec:
    """Return the specification that command-line flags describe; paths are relative to folder."""
    return resolve(validate(RunSpec, content, source="one of the options"), folder)


def read_suite(name: str, text: str) -> Suite:
    """Read a suite from the text of its TOML file."""
    return validate(Suite, _parse(text, name), source=name, text=text)


def resolve(spec: RunSpec, folder: Path) -> RunSpec:
    """Make paths of models, data and evaluators absolute, so that every worker finds them."""
    found: dict[str, Any] = {
        "models": tuple(_absolute_model(model, folder) for model in spec.models),
        "data": tuple(_absolute_data(data, folder) for data in spec.data),
    }
    if spec.evaluators:
        found["evaluators"] = tuple(_absolute_params(entry, folder) for entry in spec.evaluators)
    return spec.model_copy(update=found)


def merge(spec: RunSpec, suite: Suite) -> RunSpec:
    """Return the specification with what the suite says filled in where the user says nothing."""
    given = {name: getattr(spec, name) for name in spec.model_fields_set}
    fixed = {name: getattr(suite, name) for name in suite.model_fields_set - {"description"}}
    own = {entry.name for entry in spec.evaluators}
    evaluators = (*(e for e in suite.evaluators if e.name not in own), *spec.evaluators)
    return RunSpec.model_construct(**{**fixed, **given, "evaluators": evaluators})


def validate(
    kind: type[T], content: Mapping[str, Any], *, source: str, text: str | None = None
) -> T:
    """Validate ``content`` or raise one SpecError that names every bad place."""
    try:
        return kind.model_validate(content)
    except ValidationError as bad:
        raise SpecError(f"{source} is not valid: {explain(bad, text)}") from bad


def explain(bad: ValidationError, text: str | None, place: Sequence[str | int] = ()) -> str:
    """Return what is wrong with values found at ``place`` of a TOML text, with line numbers."""
    return "; ".join(_explain(error, text, (*place, *error["loc"])) for error in bad.errors())


def _explain(error: Any, text: str | None, place: Sequence[str | int]) -> str:
    name = ".".join(str(part) for part in place)
    line = None if text is None else line_of(text, place)
    where = f"line {line}: " if line else ""
    if error["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"{where}{name} is no known setting; remove it or correct its spelling"
    if error["type"] == "missing":
        return f"{where}{name} is missing; add it"
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
    if not name:
        return f"{where}{message}"
    if error["type"] == "value_error":
        return f"{where}{name}: {message}"
    return f"{where}{name}: expected {message}, got {error['input']!r}"


def read_text(path: Path) -> str:
    """Return the text of a specification; editors on Windows put a byte-order mark in front."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as bad:
        raise SpecError(
            f"cannot read the specification {path} ({bad}); expected a TOML file in UTF-8"
        ) from bad


def _parse(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as bad:
        raise SpecError(f"{source} is not valid TOML: {bad}; correct that line") from bad


def _absolute_model(name: str, folder: Path) -> str:
    if not name.startswith("remote:"):
        return _absolute(name, folder)
    from onnxfr.models.remote.reference import absolute  # torch comes with it

    return absolute(name, folder)


def _absolute(name: str, folder: Path) -> str:
    place = folder / expanded(name)
    return str(place.resolve()) if place.exists() else name


def _absolute_params(entry: EvaluatorSpec, folder: Path) -> EvaluatorSpec:
    places = {}
    for name, value in entry.params.items():
        if not isinstance(value, str) or not value:
            continue
        if name in _FOLDERS:
            places[name] = str((folder / expanded(value)).resolve())
        elif name in _NAMES_OR_FILES:
            places[name] = _absolute(value, folder)
    return entry.model_copy(update={"params": {**entry.params, **places}}) if places else entry


def _absolute_data(spec: str, folder: Path) -> str:
    from onnxfr.data.loaders import absolute  # image libraries come with it

    return absolute(spec, folder)
