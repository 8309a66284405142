"""Remote services in a run: whose word, which budget, at what price."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxfr.errors import SpecError

if TYPE_CHECKING:
    from onnxfr.evaluators.planning import Plan
    from onnxfr.runs.cells import Cell
    from onnxfr.runs.context import Context
    from onnxfr.runs.spec import RunSpec


def with_services(asked: RunSpec, place: Path, max_calls: int | None, authorised: bool) -> RunSpec:
    """Return the specification with journals, budgets and permission filled into its services."""
    services = [model for model in asked.models if model.startswith("remote:")]
    if not services:
        if max_calls is not None or authorised:
            raise SpecError("--max-calls and --i-am-authorised belong to --model remote:ADAPTER")
        return asked
    from onnxfr.models.remote.reference import complete

    models = tuple(
        complete(model, place, budget=max_calls, authorised=authorised) for model in asked.models
    )
    return asked.model_copy(update={"models": models})


def open_services(plan: Plan, context: Context) -> None:
    """Fail now rather than in the first cell where a service may not be asked."""
    from onnxfr.models.remote.model import RemoteModel

    for ref in plan.models:
        model = context.model(ref)
        if isinstance(model, RemoteModel):
            model.open()


def price_services(plan: Plan, cells: Sequence[Cell], context: Context) -> list[dict[str, Any]]:
    """Return the most that the cells cost at each service, by its adapter's price."""
    from onnxfr.models.remote.model import RemoteModel

    found = []
    for ref in plan.models:
        model = context.model(ref)
        if isinstance(model, RemoteModel):
            questions = sum(cell.cost.images for cell in cells if cell.model == ref)
            price, currency = model.price(questions)
            calls = questions * model.adapter.calls
            found.append(
                {"service": ref.name, "calls": calls, "price": price, "currency": currency}
            )
    return found


def describe_price(service: dict[str, Any]) -> str:
    """Return a sentence on what a service would cost at most."""
    if service["price"] is None:
        cost = "price unknown (add price=PER_CALL to the service, or [price] to its adapter)"
    else:
        cost = f"at most {service['price']:.2f} {service['currency']} by the price given"
    return f"{service['service']}: at most {service['calls']} calls, {cost}"
