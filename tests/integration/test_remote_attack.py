"""Attacks over a real HTTP connection: a bad network, a killed client, a service that changes."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "evaluators"))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "attacks"))

from attack_games import Randomised
from chaos_proxy import ChaosProxy
from remote_games import (
    adapter_for,
    attack_remotely,
    free_port,
    pattern_probe,
    served,
    served_here,
)
from toy_faces import make_model

from onnxfr.attacks.base import AttackResult
from onnxfr.errors import RemoteError
from onnxfr.models.remote.model import RemoteModel
from onnxfr.models.wrapper import load_model

THRESHOLD = "0.6"
FAST = {"retries": 12, "timeout": 5.0}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "toy")


@pytest.fixture(scope="module")
def port(model: Path) -> Iterator[int]:
    chosen = free_port()
    with served(model, chosen, "--threshold", THRESHOLD):
        yield chosen


@pytest.fixture(scope="module")
def undisturbed(port: int, tmp_path_factory: pytest.TempPathFactory) -> tuple[AttackResult, int]:
    journal = tmp_path_factory.mktemp("journal") / "j"
    result, remote = attack_remotely(f"http://127.0.0.1:{port}", journal, None)
    assert result.won.all()
    return result, remote.journal.spent


def same(left: AttackResult, right: AttackResult) -> None:
    np.testing.assert_array_equal(left.images, right.images)
    np.testing.assert_array_equal(left.won, right.won)
    np.testing.assert_array_equal(left.queries, right.queries)
    assert left.trace == right.trace


def test_the_remote_answers_are_the_local_ones(
    model: Path, undisturbed: tuple[AttackResult, int]
) -> None:
    from remote_games import Walk

    from onnxfr.oracle import Oracle
    from onnxfr.threat import Threat
    from onnxfr.types import Goal

    probe, threat = pattern_probe(), Threat(norm="l2")
    local = Oracle(
        load_model(model),
        probe,
        threat,
        goal=Goal.IMPERSONATE,
        threshold=float(THRESHOLD),
        quantise=True,
    )
    same(Walk()(local, probe, threat, seed=3), undisturbed[0])


def test_a_bad_network_changes_nothing_but_the_bill(
    port: int, undisturbed: tuple[AttackResult, int], tmp_path: Path
) -> None:
    budget = 3 * undisturbed[1]
    with ChaosProxy(port, seed=1) as proxy:
        result, remote = attack_remotely(proxy.url, tmp_path / "j", budget, **FAST)
    same(result, undisturbed[0])
    assert all(
        proxy.seen[fault] for fault in ("drop_before", "drop_after", "too_many", "duplicate")
    )
    # Each call the server answered is charged; each answer that arrived is in the journal once.
    assert proxy.seen["served"] <= remote.journal.spent <= budget
    assert len(remote.journal.answers) <= proxy.seen["served"]
    got = [line for line in (tmp_path / "j").read_text().splitlines() if '"got"' in line]
    assert len(got) == len(remote.journal.answers) == undisturbed[1]


@pytest.mark.parametrize("budget", [0, 7, 40])
def test_the_budget_is_never_exceeded(
    port: int, undisturbed: tuple[AttackResult, int], tmp_path: Path, budget: int
) -> None:
    with ChaosProxy(port, seed=2) as proxy:
        result, remote = attack_remotely(proxy.url, tmp_path / "j", budget, **FAST)
        assert proxy.seen["served"] <= remote.journal.spent <= budget < undisturbed[1]
        assert result.images.shape == undisturbed[0].images.shape
        # Once it is spent, nothing more is sent, however often the run is started again.
        before = sum(proxy.seen.values())
        if remote.journal.left < 1:
            attack_remotely(proxy.url, tmp_path / "j", budget, **FAST)
            assert sum(proxy.seen.values()) == before


def _attack_and_store(url: str, journal: Path, budget: int, place: Path) -> None:
    result, _ = attack_remotely(url, journal, budget, **FAST)
    np.savez(place, images=result.images, queries=result.queries, won=result.won)
    os.rename(f"{place}.npz", place)  # noqa: PTH104


def test_kill_9_and_resume_equals_the_undisturbed_run(
    port: int, undisturbed: tuple[AttackResult, int], tmp_path: Path
) -> None:
    journal, place, budget = tmp_path / "j", tmp_path / "result", 3 * undisturbed[1]
    fork = multiprocessing.get_context("fork")
    kills = 0
    with ChaosProxy(port, seed=4, share=0.2) as proxy:
        while not place.exists():
            client = fork.Process(
                target=_attack_and_store, args=(proxy.url, journal, budget, place)
            )
            client.start()
            grown = (journal.stat().st_size if journal.exists() else 0) + 4000
            while client.is_alive():
                if kills < 3 and journal.exists() and journal.stat().st_size > grown:
                    assert client.pid is not None
                    os.kill(client.pid, signal.SIGKILL)
                    kills += 1
                    break
                time.sleep(0.002)
            client.join(60)
        served_calls = proxy.seen["served"]
    assert kills == 3
    result = np.load(place)
    for name in ("images", "queries", "won"):
        np.testing.assert_array_equal(result[name], getattr(undisturbed[0], name))
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    spent = sum(e["calls"] for e in lines if "ask" in e) - sum(
        e["calls"] for e in lines if "back" in e
    )
    got = [entry["got"] for entry in lines if "got" in entry]
    assert served_calls <= spent <= budget
    assert len(got) == len(set(got)) == undisturbed[1]


def test_a_second_run_on_the_journal_costs_nothing(
    port: int, undisturbed: tuple[AttackResult, int], tmp_path: Path
) -> None:
    with ChaosProxy(port, share=0.0) as proxy:
        attack_remotely(proxy.url, tmp_path / "j", None)
        before = proxy.seen["served"]
        result, _ = attack_remotely(proxy.url, tmp_path / "j", None)
        assert proxy.seen["served"] == before
    same(result, undisturbed[0])


def test_a_threshold_changed_in_mid_run_stops_it(model: Path, tmp_path: Path) -> None:
    chosen, journal, probe = free_port(), tmp_path / "j", pattern_probe()
    remote = RemoteModel(adapter_for(f"http://127.0.0.1:{chosen}", **FAST), journal)
    assert probe.references is not None
    with served_here(load_model(model), 0.6, chosen):
        before = remote.compare(probe.images, probe.references)
    with served_here(load_model(model), -1.0, chosen):
        # What is known stays known; a new question shows that the service is another one.
        np.testing.assert_array_equal(remote.compare(probe.images, probe.references), before)
        with pytest.raises(RemoteError, match="not the service it was"):
            remote.compare(probe.references, probe.images)
        spent = remote.journal.spent
    assert set(remote.journal.repeats) and spent > len(probe)


def test_clients_that_leave_in_the_middle_do_no_harm(port: int) -> None:
    head = b"POST /v1/verify HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", port)) as left:
            left.sendall(head + b'Content-Length: 5000\r\n\r\n{"probe": "')
    # The service's log is searched for traces when it ends; here it still answers.
    with socket.create_connection(("127.0.0.1", port)) as stays:
        stays.sendall(b"GET /v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert stays.recv(4096).startswith(b"HTTP/1.1 200")


def test_a_service_that_is_gone_ends_with_a_clear_word(tmp_path: Path) -> None:
    probe = pattern_probe()
    assert probe.references is not None
    remote = RemoteModel(adapter_for(f"http://127.0.0.1:{free_port()}", retries=1), tmp_path / "j")
    with pytest.raises(RemoteError, match="gave no answer in 2 tries"):
        remote.compare(probe.images, probe.references)
    assert remote.journal.spent == 0


def test_a_service_that_changes_its_mind_is_held_to_its_first_word(
    model: Path, tmp_path: Path
) -> None:
    chosen, probe, inner = free_port(), pattern_probe(12), load_model(model)
    assert probe.references is not None
    middle = float(np.median(inner.similarity(probe.images, probe.references)))
    with served_here(Randomised(inner, noise=3.0), middle, chosen):
        remote = RemoteModel(adapter_for(f"http://127.0.0.1:{chosen}", **FAST), tmp_path / "j")
        first = remote.compare(probe.images, probe.references)
        for _ in range(3):
            np.testing.assert_array_equal(remote.compare(probe.images, probe.references), first)
        assert remote.journal.spent == len(probe)
        later = remote.verdicts(probe.images, probe.references, again=True)
        changed = [v is not None and v.match != (m > 0) for v, m in zip(later, first, strict=True)]
        assert any(changed) and remote.journal.spent == 2 * len(probe)
