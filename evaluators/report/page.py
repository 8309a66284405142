"""The HTML page: what was tested, what it means, how sure we are, and where it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from markupsafe import Markup

import onnxfr
from onnxfr.evaluators.base import Result
from onnxfr.evaluators.report.rendering import package_text, render
from onnxfr.evaluators.report.section import SECTIONS, Headline, Level, Section, Verdict, View
from onnxfr.evaluators.report.summary import own_certificate, source_name
from onnxfr.evaluators.report.wording import (
    count,
    interval_text,
    measure_name,
    method_text,
    value_text,
)

_SIGNS = {"green": "✓", "yellow": "!", "red": "✕"}
_WORDS = {
    "green": "green, both engines agree",
    "yellow": "yellow, usable with care",
    "red": "red, do not trust these numbers",
}
_SERVICE = "remote"
_OUTSIDE = "A service is known by its answers only; there is no file to check."
_UNCHECKED = (
    "No certificate was stored with the model when it was evaluated. Make one with: "
    "onnxfr check MODEL"
)
_LISTED = 1500
"""Results listed on the page; results.csv has all."""
_STRANGER = (
    "The certificate belongs to another version of the model file. Check the model again and "
    "repeat the run."
)


@dataclass(frozen=True)
class Content:
    """All that a page is made from."""

    manifest: Mapping[str, Any]
    views: Mapping[str, View]
    failed: Mapping[str, str]
    missing: int
    """Planned cells that nobody has come to yet."""
    unfinished: Mapping[str, str] = field(default_factory=dict)
    """Why cells hold less than was asked for, by key."""

    def gaps(self) -> list[Verdict]:
        """Say which part of the run is not there; nothing for a run that is complete."""
        short = "; ".join(sorted(set(self.unfinished.values())))
        told: tuple[tuple[int, Level, str], ...] = (
            (
                len(self.failed),
                "problem",
                "failed, so the numbers are incomplete: run the same command again to repeat them.",
            ),
            (
                self.missing,
                "caution",
                "have no records yet: run the same command again to finish them.",
            ),
            (
                len(self.unfinished),
                "caution",
                f"hold less than was asked for ({short}): run the same command again to go on.",
            ),
        )
        planned = count(len(self.manifest["cells"]))
        return [
            Verdict(level, f"{count(number)} of {planned} planned cells {what}")
            for number, level, what in told
            if number
        ]

    def misplaced(self) -> list[Verdict]:
        """Say whose crops hold the faces beside their place: that touches every number."""
        return [Verdict("caution", each) for each in self.manifest.get("placement", {}).values()]

    def sections(self) -> list[tuple[str, Section, View]]:
        """Return the evaluators that have a section of their own, in reading order."""
        known = [
            (name, SECTIONS.get(name)(), view)
            for name, view in self.views.items()
            if name in SECTIONS
        ]
        return sorted(known, key=lambda entry: (entry[1].order, entry[0]))

    def results(self) -> list[Result]:
        """Return every result, evaluator by evaluator."""
        return [result for view in self.views.values() for result in view.results]

    def verdicts(self) -> list[Verdict]:
        """Return every verdict once: problems first, otherwise in the order of sections."""
        found = {("", verdict.sentence): verdict for verdict in self.misplaced()}
        for name, section, view in self.sections():
            for verdict in section.verdicts(view):
                key = (verdict.model, verdict.sentence)
                found.setdefault(key, replace(verdict, section=name))
        return sorted(found.values(), key=lambda verdict: verdict.level != "problem")


def page(content: Content) -> str:
    """Return the whole page; the same content gives the same text."""
    manifest = content.manifest
    sections = content.sections()
    headlines: dict[str, list[Headline]] = {}
    for _, section, view in sections:
        for row in section.headlines(view):
            headlines.setdefault(f"{row.model} on {row.data}", []).append(row)
    return str(
        render(
            "page.html",
            title=_title(manifest),
            css=Markup(package_text("style.css")),
            tested=_tested(manifest),
            verdicts=content.verdicts(),
            failed=sorted(content.failed.values()),
            gaps=content.gaps(),
            certificates=[_certificate(model) for model in manifest["models"]],
            headlines=list(headlines.items()),
            several=len(manifest["models"]) > 1 or len(manifest["data"]) > 1,
            sections=[
                {"anchor": name, "title": section.title, "body": section.body(view)}
                for name, section, view in sections
            ]
            + _plain_sections(content),
            protocol=manifest["protocol"],
            fmr=f"{manifest['fmr']:g}",
            seed=manifest["seed"],
            models=[_model(model) for model in manifest["models"]],
            data=[_data(entry, manifest) for entry in manifest["data"]],
            software=_software(manifest),
            results=_rows(content.results()[:_LISTED]),
            all_results=len(content.results()),
            version=onnxfr.__version__,
        )
    )


def _title(manifest: Mapping[str, Any]) -> str:
    models = " and ".join(_few([model["name"] for model in manifest["models"]]))
    data = " and ".join(_few([entry["name"] for entry in manifest["data"]]))
    return f"{models} on {data}"


def _few(names: Sequence[str]) -> list[str]:
    return [*names[:2], f"{len(names) - 2} more"] if len(names) > 3 else list(names)


def _tested(manifest: Mapping[str, Any]) -> list[str]:
    lines = []
    for model in manifest["models"]:
        card = model["card"]
        if model.get("device") == _SERVICE:
            lines.append(f"Service {model['name']}: {card['architecture']}.")
            continue
        size = f"{card['input_height']}×{card['input_width']}"
        lines.append(
            f"Model {model['name']}: {size} pictures to {card['embedding_dim']} numbers, "
            f"{card['precision']}; licence {card['licence']}."
        )
    for entry in manifest["data"]:
        drawn = " (a seeded draw)" if entry.get("limit") else ""
        lines.append(f"Data {entry['name']}: {count(entry['pairs'])} pairs{drawn}.")
    return lines


def _certificate(model: Mapping[str, Any]) -> dict[str, Any]:
    if model.get("device") == _SERVICE:
        return _no_certificate(model, _OUTSIDE)
    found = own_certificate(model)
    if found is None:
        return _no_certificate(model, _STRANGER if model.get("certificate") else _UNCHECKED)
    return {
        "model": model["name"],
        "status": found["status"],
        "sign": _SIGNS[found["status"]],
        "words": _WORDS[found["status"]],
        "note": f"Measured on {found['pictures']}." if found.get("pictures") else "",
        "flags": [
            {"level": f["level"], "sign": _SIGNS[f["level"]], "sentence": f["sentence"]}
            for f in found.get("flags", [])
        ],
    }


def _no_certificate(model: Mapping[str, Any], note: str) -> dict[str, Any]:
    return {
        "model": model["name"],
        "status": "none",
        "sign": "?",
        "words": "not checked",
        "note": note,
        "flags": [],
    }


def _plain_sections(content: Content) -> list[dict[str, Any]]:
    """Return a table for every evaluator that brings no section."""
    return [
        {
            "anchor": name,
            "title": name.replace("_", " ").capitalize(),
            "body": render("plain.html", rows=_rows(view.results)),
        }
        for name, view in content.views.items()
        if name not in SECTIONS
    ]


def _rows(results: Sequence[Result]) -> list[dict[str, str]]:
    return [
        {
            "measure": measure_name(result),
            "value": value_text(result),
            "interval": interval_text(result),
            "n": count(result.n),
            "method": method_text(result) or "–",
            "protocol": result.protocol or "–",
            "threshold": _threshold(result),
            "where": f"{result.model}, {result.data}",
        }
        for result in results
    ]


def _threshold(result: Result) -> str:
    if result.threshold is None:
        return "–"
    return f"{result.threshold:.4f} ({result.threshold_origin or 'fixed'})"


def _model(model: Mapping[str, Any]) -> dict[str, Any]:
    card = model["card"]
    notes = [("note", note) for note in card["notes"]]
    if model.get("device") == _SERVICE:
        known = [("sha256 of the adapter", model["sha256"]), ("service", card["architecture"])]
        return {"name": model["name"], "facts": [*known, ("licence", card["licence"]), *notes]}
    facts = [
        ("sha256 of the normal form", model["sha256"]),
        *(
            (name.replace("_", " "), card[name])
            for name in ("framework", "architecture", "training_set", "loss", "licence")
        ),
        ("input", f"{card['input_height']}×{card['input_width']}, template {card['template']}"),
        ("embedding", f"{card['embedding_dim']} numbers, opset {card['opset']}"),
        ("vendor's file", f"{card['source']['file']}, sha256 {card['source']['sha256']}"),
        *((f"threshold {entry['origin']}", f"{entry['value']:g}") for entry in card["thresholds"]),
        *(("repair", f"{entry['name']}: {entry['detail']}") for entry in card["repairs"]),
        *notes,
    ]
    return {"name": model["name"], "facts": facts}


def _data(entry: Mapping[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any]:
    problems = manifest.get("problems", {}).get(entry["spec"], [])
    facts = [
        ("source", source_name(entry["spec"])),
        ("pairs", count(entry["pairs"])),
        ("fingerprint", entry["fingerprint"]),
        ("seed of the draw", str(entry["seed"])),
        *(("left out", problem) for problem in problems[:50]),
    ]
    if len(problems) > 50:
        facts.append(("left out", f"and {len(problems) - 50} more; see the manifest"))
    return {"name": entry["name"], "facts": facts}


def _software(manifest: Mapping[str, Any]) -> list[tuple[str, str]]:
    facts = [("code", manifest["code"])]
    for session in manifest.get("sessions", []):
        made = session.get("provenance", {})
        packages = ", ".join(f"{k} {v}" for k, v in sorted(made.get("packages", {}).items()))
        facts.append(
            (
                session.get("started", "session"),
                f"{session.get('ending', '')} after {session.get('seconds', 0):.0f} s; "
                f"{session.get('done', 0)} cells done, {session.get('reused', 0)} reused; "
                f"Python {made.get('python', '?')} on {made.get('system', '?')} "
                f"{made.get('machine', '?')} {made.get('instruction_set', '')}; {packages}",
            )
        )
    return facts
