"""Smallest changes pair by pair in one small file per model, and the tables made of such files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from onnxfr.metrics.attack_success import median_cost, robfr_score
from onnxfr.runs.files import write_atomically

GOALS = ("dodge", "impersonate")
ORDERS = {"l2": ("cw", "bim", "mim", "fgsm"), "linf": ("bim", "mim", "fgsm")}
"""The attacks of RobFR from the strongest to the weakest."""
ROWS = (
    *(("l2", name) for name in ("fgsm", "bim", "mim", "cw", "fmn", "ddn")),
    *(("linf", name) for name in ("fgsm", "bim", "mim", "fmn")),
)
_ROBFR_COLUMNS = (
    *(("l2", "fgsm"), ("l2", "bim"), ("l2", "mim"), ("l2", "cw")),
    *(("linf", "fgsm"), ("linf", "bim"), ("linf", "mim")),
)
ROBFR = {
    "FaceNet": "0.92/1.17 0.59/0.66 0.66/0.73 0.54/0.61 1.75/2.14 1.17/1.31 1.28/1.42",
    "MobileFace": "1.11/0.62 0.75/0.50 0.83/0.53 0.71/0.49 1.98/1.12 1.44/0.94 1.55/0.97",
}
"""Two rows of Table 2 of Yang et al. 2020: dodging / impersonation, grey levels."""
_ROBFR_NETWORK = {"facenet_vggface2": "FaceNet"}
_DIGITS = 4


@dataclass
class Found:
    """One attack on the first pairs of a draw: grey levels and gradients in the draw's order."""

    method: str
    norm: str
    goal: str
    parameters: dict[str, Any]
    distance: list[float | None] = field(default_factory=list)
    """0 where no attack was needed, None where it failed."""
    gradients: list[int | None] = field(default_factory=list)
    """None where the pair has no game."""

    @property
    def name(self) -> str:
        """The attack without its search and settings."""
        return self.method.rpartition(":")[2].partition("(")[0]

    def add(self, record: dict[str, Any]) -> None:
        """Take in the record of the next pair."""
        played = record["outcome"] == "played"
        won = played and record["won"]
        size = round(255 * record["distance"], _DIGITS) if won else None
        self.distance.append(0.0 if played and record["won_clean"] else size)
        self.gradients.append(record["gradients"] if played else None)

    @property
    def played(self) -> NDArray[np.bool_]:
        """Which pairs had a game."""
        return np.array([count is not None for count in self.gradients], dtype=np.bool_)

    @property
    def cost(self) -> NDArray[np.float64]:
        """Grey levels of every pair; infinite where the attack failed."""
        return np.array([np.inf if size is None else size for size in self.distance])


@dataclass
class Measured:
    """All that is known about one model."""

    model: str
    sha256: str
    data: str
    fingerprint: str
    seed: int
    threshold: float
    threshold_origin: str
    pairs: dict[str, list[str]] = field(default_factory=lambda: {goal: [] for goal in GOALS})
    """The draw of each goal, as far as any attack went."""
    attacks: list[Found] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Measured:
        """Read a file that ``write`` made."""
        content = json.loads(path.read_text(encoding="utf-8"))
        return cls(**content | {"attacks": [Found(**entry) for entry in content["attacks"]]})

    def write(self, path: Path) -> None:
        """Replace the file; each attack is a line, so that a longer draw is a short difference."""
        path.parent.mkdir(parents=True, exist_ok=True)
        content = asdict(self)
        content["pairs"] = _Lines(
            f" {json.dumps(goal)}: {json.dumps(names)}" for goal, names in self.pairs.items()
        ).between("{", "}")
        content["attacks"] = _Lines(
            " " + json.dumps(asdict(entry)) for entry in self.attacks
        ).between("[", "]")
        lines = _Lines(
            f"{json.dumps(name)}: {value if isinstance(value, _Text) else json.dumps(value)}"
            for name, value in content.items()
        )
        write_atomically(path, (lines.between("{", "}") + "\n").encode())

    def entry(self, method: str, norm: str, goal: str, parameters: dict[str, Any]) -> Found:
        """Return what is known of an attack; it starts anew where its parameters changed."""
        wanted = Found(method, norm, goal, parameters)
        for place, known in enumerate(self.attacks):
            if (known.method, known.norm, known.goal) == (method, norm, goal):
                if known.parameters == parameters:
                    return known
                self.attacks[place] = wanted
                return wanted
        self.attacks.append(wanted)
        return wanted

    def find(self, norm: str, name: str, goal: str) -> list[Found]:
        """Return every variant of an attack, the one on most pairs first."""
        same = (e for e in self.attacks if (e.norm, e.name, e.goal) == (norm, name, goal))
        return sorted((e for e in same if e.played.any()), key=lambda e: -e.played.sum())


class _Text(str):
    """Text that is JSON already."""


class _Lines(list[str]):
    def __init__(self, lines: Iterable[str]) -> None:
        super().__init__(lines)

    def between(self, opening: str, closing: str) -> _Text:
        return _Text(f"{opening}\n" + ",\n".join(self) + f"\n{closing}")


def robfr_row(model: str) -> tuple[str, dict[tuple[str, str], str]]:
    """Return RobFR's network of a model's architecture and its medians; ours are MobileFaceNets."""
    network = _ROBFR_NETWORK.get(model, "MobileFace")
    cells = [cell.replace("/", " / ") for cell in ROBFR[network].split()]
    return network, dict(zip(_ROBFR_COLUMNS, cells, strict=True))


def medians_table(found: Measured) -> Iterator[str]:
    """Yield a Markdown table in RobFR's units, dodging / impersonation."""
    network, robfr = robfr_row(found.model)
    yield (
        f"{found.model}, threshold {found.threshold:.4f} ({found.threshold_origin}), pairs of "
        f"{found.data} drawn with seed {found.seed}; grey levels, dodging / impersonation"
    )
    yield ""
    yield f"| norm | attack | median | 95 % | RobFR {network} | its script | gradients | pairs |"
    yield "|---|---|---|---|---|---|---|---|"
    for norm, name in ROWS:
        methods = dict.fromkeys(e.method for goal in GOALS for e in found.find(norm, name, goal))
        for method in methods:
            both = [e for g in GOALS for e in found.find(norm, name, g) if e.method == method]
            yield f"| {norm} | {method} | {_cells(both, robfr.get((norm, name), '–'))} |"


def _cells(both: Sequence[Found], robfr: str) -> str:
    medians = [median_cost(e.cost[e.played]) for e in both]
    scripts = [robfr_score(e.cost[e.played], np.isfinite(e.cost[e.played])) for e in both]
    counts = [[count for count in e.gradients if count is not None] for e in both]
    return " | ".join(
        (
            " / ".join(f"{m.value:.3f}" for m in medians),
            " / ".join(f"{m.low:.2f}–{m.high:.2f}" for m in medians),
            robfr,
            " / ".join(f"{s.median:.2f}" for s in scripts),
            " / ".join(f"{np.mean(each):.0f}" for each in counts),
            " / ".join(str(len(each)) for each in counts),
        )
    )


@dataclass(frozen=True)
class Order:
    """Whether one attack needs no larger a change than another, on the pairs both were run on."""

    norm: str
    goal: str
    strong: str
    weak: str
    medians: tuple[float, float]
    closer: int
    equal: int
    farther: int

    @property
    def p(self) -> float:
        """Sign test, one-sided: how likely so many pairs in order are if none were stronger."""
        untied = self.closer + self.farther
        if not untied:
            return 1.0
        return float(binomtest(self.closer, untied, alternative="greater").pvalue)


def compare(strong: Found, weak: Found) -> Order:
    """Compare two attacks pair by pair; pairs lost without an attack say nothing and are equal."""
    shared = min(len(strong.distance), len(weak.distance))
    played = strong.played[:shared] & weak.played[:shared]
    a, b = strong.cost[:shared][played], weak.cost[:shared][played]
    return Order(
        norm=strong.norm,
        goal=strong.goal,
        strong=strong.method,
        weak=weak.method,
        medians=(_median(a), _median(b)),
        closer=int((a < b).sum()),
        equal=int((a == b).sum()),
        farther=int((a > b).sum()),
    )


def _median(cost: NDArray[np.float64]) -> float:
    # As exact as what was kept: half-way between two values a float is a hair off.
    return round(float(np.median(cost)), _DIGITS + 1)


def orders(found: Measured) -> list[Order]:
    """Return the neighbours of RobFR's order, and FMN and DDN beside every C&W."""
    compared = []
    for goal in GOALS:
        for norm, names in ORDERS.items():
            known = [found.find(norm, name, goal) for name in names]
            compared += [compare(a[0], b[0]) for a, b in pairwise(known) if a and b]
        rivals = [e for name in ("fmn", "ddn") for e in found.find("l2", name, goal)]
        compared += [compare(e, cw) for cw in found.find("l2", "cw", goal) for e in rivals]
    return compared


def orders_table(found: Measured) -> Iterator[str]:
    """Yield the test of the order as a Markdown table."""
    yield "| norm | goal | expected | medians, shared pairs | in order | closer/equal/farther | p |"
    yield "|---|---|---|---|---|---|---|"
    for each in orders(found):
        total = each.closer + each.equal + each.farther
        yield (
            f"| {each.norm} | {each.goal} | {each.strong} ≤ {each.weak} | "
            f"{each.medians[0]:.3f} {'≤' if each.medians[0] <= each.medians[1] else '**>**'} "
            f"{each.medians[1]:.3f} | {100 * (total - each.farther) / max(total, 1):.0f} % | "
            f"{each.closer}/{each.equal}/{each.farther} | {each.p:.2g} |"
        )
