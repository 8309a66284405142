"""How one service is asked and understood, as a TOML file: no code per vendor.

Texts in ``url``, ``headers``, ``query``, ``body`` and ``signing`` may hold ``${...}``: ``probe``
and ``reference`` (base64), ``joined`` (both side by side, base64), ``secret.NAME`` (from the
environment variable named under ``[secrets]``), ``parameter.NAME`` and ``captured.NAME``. Nothing
else of the environment can be reached.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from onnxfr.errors import RemoteError, UnknownName
from onnxfr.models.remote.looking import check_path
from onnxfr.paths import expanded

NAME = r"^[a-z0-9][a-z0-9_.-]{0,60}$"
"""What a service may be called: results and the file of its journal bear its name."""

Value = bool | int | float | str
AnswerPath = Annotated[str, AfterValidator(check_path)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Step(_Part):
    """One HTTP request of a question; the last one's answer is the verdict.

    ``captures`` keeps parts of an earlier step's answer by name. A part that is missing means that
    the picture was rejected: that is how services say that they found no face.
    """

    method: Literal["POST", "PUT", "GET"] = "POST"
    url: str = Field(min_length=8)
    headers: dict[str, str] = Field(default_factory=dict)
    query: dict[str, str] = Field(default_factory=dict)
    encoding: Literal["json", "form", "multipart", "raw"] = "json"
    body: Any = None
    captures: dict[str, AnswerPath] = Field(default_factory=dict)
    signer: str | None = None
    signing: dict[str, str] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _body_has_the_form_of_its_encoding(self) -> Step:
        """Refuse what would be sent as Python writes it, be paid for, and be understood nowhere."""
        try:
            json.dumps(self.body, allow_nan=False)
        except (TypeError, ValueError):
            raise ValueError(
                "a body holds texts, finite numbers, true and false, tables and lists; "
                "write dates and times as texts"
            ) from None
        if self.body is None or self.encoding == "json":
            return self
        if self.encoding == "raw":
            if not isinstance(self.body, str):
                raise ValueError('a body in raw encoding is one text, such as "${probe}"')
        elif not isinstance(self.body, dict) or not all(
            isinstance(each, Value) for each in self.body.values()
        ):
            raise ValueError(
                f"a body in {self.encoding} encoding is a table of texts, numbers, true and false: "
                "no list and no further table"
            )
        return self


class Picture(_Part):
    """How pictures are sent; ``enlarge`` repeats pixels for services with a least size."""

    format: Literal["png", "jpeg"] = "png"
    quality: int = Field(default=95, ge=1, le=100)
    enlarge: int = Field(default=1, ge=1, le=16)


class Rule(_Part):
    """Answers with one of these statuses and, where ``path`` is given, one of these values.

    ``begins`` are beginnings of the text there, for codes that are followed by particulars;
    ``unless`` means any value but these.
    """

    status: tuple[int, ...] = ()
    path: AnswerPath | None = None
    values: tuple[Value, ...] = ()
    begins: tuple[str, ...] = ()
    unless: tuple[Value, ...] = ()
    absent: bool = False
    """Whether the rule means that there is nothing at ``path`` of the last step's answer; earlier
    answers are not held against it."""

    @model_validator(mode="after")
    def _says_something(self) -> Rule:
        if self.path is None and (self.values or self.begins or self.unless or self.absent):
            raise ValueError(
                "values, begins, unless and absent speak of what is at a path: name it"
            )
        if self.path is None and not self.status:
            raise ValueError("name a status or a path: this rule would fit every answer")
        return self


class Answer(_Part):
    """Where the verdict stands. ``yes`` and ``no`` are the values at ``decision``.

    With a score the decision may be left out: a score above ``threshold`` (or above the number at
    ``threshold_path``) accepts, or one below it where ``score_is`` a distance. ``score_range``
    scales margins to [0, 1]. ``score_absent`` is the score of an answer that has none. ``version``
    is where the service says which version it is.

    ``rejected`` answers are about a picture, ``retry`` ones were not given, ``failed`` ones say
    that the client is wrong (key, account, parameters), whatever their status: they stop the run.
    """

    decision: AnswerPath | None = None
    yes: tuple[Value, ...] = (True,)
    no: tuple[Value, ...] = (False,)
    score: AnswerPath | None = None
    score_is: Literal["similarity", "distance"] = "similarity"
    score_range: tuple[float, float] = (0.0, 1.0)
    score_absent: float | None = None
    threshold: float | None = None
    threshold_path: AnswerPath | None = None
    version: AnswerPath | None = None
    rejected: tuple[Rule, ...] = ()
    retry: tuple[Rule, ...] = ()
    failed: tuple[Rule, ...] = ()

    @model_validator(mode="after")
    def _something_to_read(self) -> Answer:
        judged = self.threshold is not None or self.threshold_path is not None
        if self.decision is None and not (self.score is not None and judged):
            raise ValueError("say where the decision stands, or a score and its threshold")
        if self.score_is == "distance" and self.score is None:
            raise ValueError("score_is tells what a score means; say where the score stands")
        if self.score_range[0] >= self.score_range[1]:
            raise ValueError("score_range goes from low to high")
        return self


class Pace(_Part):
    """How fast and how stubbornly a service is asked."""

    per_second: float | None = Field(default=None, gt=0)
    concurrency: int = Field(default=4, ge=1, le=256)
    timeout: float = Field(default=30.0, gt=0)
    """Seconds in which a connection is made, an answer begins, and then ends."""
    retries: int = Field(default=5, ge=0, le=20)
    patience: float = Field(default=120.0, ge=0)
    """The longest Retry-After that is waited for instead of giving up until the next run."""


class Price(_Part):
    """What one HTTP call costs; None where only the user's contract tells."""

    per_call: float | None = Field(default=None, ge=0)
    currency: str = "USD"


class Adapter(_Part):
    """One service."""

    name: str = Field(pattern=NAME)
    description: str = Field(min_length=1)
    tested: str = Field(min_length=1)
    """Against what this adapter was tried; the report repeats it."""
    secrets: dict[str, str] = Field(default_factory=dict)
    optional_secrets: tuple[str, ...] = ()
    """Secrets that are empty where their variable is not set; empty headers are not sent."""
    parameters: dict[str, str] = Field(default_factory=dict)
    picture: Picture = Picture()
    steps: tuple[Step, ...] = Field(min_length=1)
    answer: Answer
    pace: Pace = Pace()
    price: Price = Price()

    @model_validator(mode="after")
    def _optional_secrets_are_secrets(self) -> Adapter:
        unknown = ", ".join(sorted(set(self.optional_secrets) - set(self.secrets)))
        if unknown:
            raise ValueError(f"optional_secrets names {unknown}, which [secrets] does not")
        return self

    @property
    def calls(self) -> int:
        """HTTP calls that one question costs."""
        return len(self.steps)

    def with_parameters(self, given: Mapping[str, str]) -> Adapter:
        """Return the adapter with some parameters set."""
        unknown = sorted(set(given) - set(self.parameters))
        if unknown:
            known = ", ".join(self.parameters) or "none"
            raise RemoteError(
                f"adapter {self.name} has no parameter {', '.join(unknown)}; it has: {known}"
            )
        return self.model_copy(update={"parameters": {**self.parameters, **given}})

    def digest(self) -> str:
        """Return a hash of everything that decides which questions are asked and how.

        Rules for answers that are no verdicts are not part of it: errors that stop a run ask for
        such rules, and a journal that they made another's would be paid for twice.
        """
        mended = dict.fromkeys(("rejected", "retry", "failed"), ())
        answer = self.answer.model_copy(update=mended)
        return self.model_copy(update={"answer": answer}).former_digest()

    def former_digest(self) -> str:
        """Return what older journals have in its place: a hash of those rules, too."""
        aside: dict[str, Any] = dict.fromkeys(("pace", "price", "description", "tested"), True)
        # Later settings: journals that are older go on where an adapter does without them.
        if not self.optional_secrets:
            aside["optional_secrets"] = True
        if self.answer.score_is == "similarity":
            aside["answer"] = {"score_is"}
        return hashlib.sha256(self.model_dump_json(exclude=aside).encode()).hexdigest()


def adapter_names() -> list[str]:
    """Return the adapters in the box."""
    folder = resources.files("onnxfr.models.remote").joinpath("adapters")
    names = [entry.name for entry in folder.iterdir()]
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def read_adapter(reference: str) -> Adapter:
    """Read an adapter by its path, or by its name among those in the box."""
    if reference in adapter_names():
        folder = resources.files("onnxfr.models.remote").joinpath("adapters")
        text = folder.joinpath(f"{reference}.toml").read_text(encoding="utf-8")
    else:
        path = expanded(reference)
        if not path.is_file():
            known = ", ".join(adapter_names())
            raise UnknownName(
                f"no adapter file at {reference}, and none in the box is called so; there are: "
                f"{known}"
            )
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as bad:
            raise RemoteError(f"cannot read the adapter {path}: {bad}") from None
    return parse_adapter(text, reference)


def parse_adapter(text: str, source: str) -> Adapter:
    """Validate the text of an adapter, naming every bad place."""
    try:
        return Adapter.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as bad:
        raise RemoteError(f"{source} is not valid TOML: {bad}") from None
    except ValidationError as bad:
        places = "; ".join(
            f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}"
            for error in bad.errors()[:5]
        )
        raise RemoteError(f"{source} is no valid adapter: {places}; see docs/service.md") from None
