"""Templates to text; everything that comes from names, cards or files is escaped."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    from jinja2 import Environment

_PACKAGE = "onnxfr.evaluators.report"


def render(template: str, **values: Any) -> Markup:
    """Return the HTML of a template; values are escaped unless they are ``Markup`` already."""
    return Markup(_environment().get_template(template).render(**values))


def package_text(name: str) -> str:
    """Return a text file that is shipped beside the templates."""
    place = resources.files(_PACKAGE).joinpath("templates", name)
    return place.read_text(encoding="utf-8")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(
        loader=FunctionLoader(package_text),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
