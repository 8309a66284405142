from __future__ import annotations

from dataclasses import replace

import pytest
from toy_runs import toy_cells

from onnxfr.cli.progress import RunProgress, bar, watched
from onnxfr.runs.cells import Cost
from onnxfr.runs.work import Attempt


def test_the_run_bar_weighs_cells_by_their_cost() -> None:
    dear, cheap = toy_cells(rows=2, size=1)
    dear = replace(dear, cost=Cost(images=10, gradients=30))
    with RunProgress(quiet=True) as progress:
        progress.begins([dear, cheap])
        (run,) = progress._progress.tasks
        assert run.total == 101
        progress.started(dear)
        assert len(progress._progress.tasks) == 2
        progress.advanced(dear, 1, 2)
        assert run.completed == 50
        progress.finished(Attempt(dear))
        assert run.completed == 100
        assert len(progress._progress.tasks) == 1
        progress.started(cheap)
        progress.finished(Attempt(cheap, message="failed"))
        assert run.completed == run.total


def test_nothing_is_shown_where_nobody_watches(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", "1")
    assert not watched()
    with bar("work") as report:
        report(1, 2)
    assert capfd.readouterr() == ("", "")
