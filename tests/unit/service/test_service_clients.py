"""How the service meets its clients: keys, limits, places to wait, the watch and the log."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
from typing import Any

import httpx
import numpy as np
import pytest
from service_games import SAME, app_of, ask, encoded, pattern, question, talk

from onnxfr.errors import SpecError
from onnxfr.models.wrapper import OnnxModel
from onnxfr.service.keys import KeyEntry, Limits
from onnxfr.service.query_watch import WatchSettings
from onnxfr.service.running import serve
from onnxfr.service.settings import ServiceSettings
from onnxfr.service.verifier import ScoreScale, Verifier

KEY = "k" * 16


def test_keys_limits_and_quotas(toy: OnnxModel) -> None:
    keys = {
        "fast": KeyEntry(key=KEY),
        "slow": KeyEntry(key="s" * 16, per_second=0.5),
        "few": KeyEntry(key="f" * 16, per_day=2),
    }
    app = app_of(toy, keys=keys, limits=Limits())

    async def story(client: httpx.AsyncClient) -> dict[str, list[httpx.Response]]:
        found: dict[str, list[httpx.Response]] = {}
        for key in ("", "nobody" * 4, KEY, "s" * 16, "f" * 16):
            headers = {"X-Api-Key": key} if key else {}
            found[key] = [
                await client.post("/v1/verify", json=SAME, headers=headers) for _ in range(4)
            ]
        return found

    found = talk(app, story)
    codes = {key: [answer.status_code for answer in answers] for key, answers in found.items()}
    assert codes[""] == codes["nobody" * 4] == [401] * 4
    assert codes[KEY] == [200] * 4
    assert codes["s" * 16] == [200, 429, 429, 429]
    assert codes["f" * 16] == [200, 200, 429, 429]
    assert 1 <= int(found["s" * 16][1].headers["retry-after"]) <= 2
    assert 1 <= int(found["f" * 16][2].headers["retry-after"]) <= 86_400


def test_concurrent_questions_share_batches_and_keep_their_answers(toy: OnnxModel) -> None:
    app = app_of(toy, scale=ScoreScale(decimals=6), max_batch=16)
    questions = [question(encoded(pattern(k)), encoded(pattern(k % 3, 1))) for k in range(40)]

    async def story(client: httpx.AsyncClient) -> tuple[list[float], list[float]]:
        alone = [(await client.post("/v1/verify", json=q)).json()["score"] for q in questions]
        answers = await asyncio.gather(*(client.post("/v1/verify", json=q) for q in questions))
        return alone, [answer.json()["score"] for answer in answers]

    alone, together = talk(app, story)
    np.testing.assert_allclose(alone, together, atol=1e-3)
    assert 2 < app.state.service.batcher.largest <= 16


def test_a_full_queue_asks_to_come_back(toy: OnnxModel) -> None:
    app = app_of(toy, max_waiting=1, max_batch=2)

    async def story(client: httpx.AsyncClient) -> list[httpx.Response]:
        return await asyncio.gather(*(client.post("/v1/verify", json=SAME) for _ in range(30)))

    answers = talk(app, story)
    busy = [answer for answer in answers if answer.status_code == 503]
    assert {answer.status_code for answer in answers} == {200, 503}
    assert all(answer.headers["retry-after"] == "1" for answer in busy)


def test_no_more_bodies_are_read_than_may_be_held(toy: OnnxModel) -> None:
    app = app_of(toy, max_waiting=3)
    release = asyncio.Event()

    async def slow() -> Any:
        yield b'{"probe": "'
        await release.wait()
        yield b'"}'

    async def story(client: httpx.AsyncClient) -> tuple[list[int], int]:
        kind = {"content-type": "application/json"}
        held = [
            asyncio.create_task(client.post("/v1/verify", content=slow(), headers=kind))
            for _ in range(3)
        ]
        while app.state.service._under_way < 3:
            await asyncio.sleep(0.01)
        refused = await client.post("/v1/verify", json=SAME)
        release.set()
        answers = await asyncio.gather(*held)
        after = await client.post("/v1/verify", json=SAME)
        assert refused.status_code == 503 and refused.headers["retry-after"] == "1"
        return [answer.status_code for answer in answers], after.status_code

    assert talk(app, story) == ([400] * 3, 200)


@pytest.mark.parametrize("kind", ["application/json", "multipart/form-data; boundary=b"])
def test_a_body_that_never_ends_loses_its_place(toy: OnnxModel, kind: str) -> None:
    app = app_of(toy, max_waiting=1, body_seconds=0.05)

    async def endless() -> Any:
        yield b'--b\r\nContent-Disposition: form-data; name="probe"; filename="a"\r\n\r\n'
        await asyncio.Event().wait()

    async def story(client: httpx.AsyncClient) -> tuple[httpx.Response, int]:
        asked = client.post("/v1/verify", content=endless(), headers={"content-type": kind})
        return await asked, (await client.post("/v1/verify", json=SAME)).status_code

    late, after = talk(app, story)
    assert (late.status_code, late.json()["error"]["code"]) == (408, "body_too_slow")
    assert late.headers["connection"] == "close"
    assert after == 200


def test_a_client_that_holds_its_share_leaves_room_for_others(toy: OnnxModel) -> None:
    keys = {"greedy": KeyEntry(key="g" * 16, per_day=3), "honest": KeyEntry(key=KEY)}
    app = app_of(toy, keys=keys, max_waiting=8)
    release = asyncio.Event()

    async def slow() -> Any:
        yield b"{"
        await release.wait()

    async def story(client: httpx.AsyncClient) -> list[httpx.Response]:
        greedy = {"X-Api-Key": "g" * 16, "content-type": "application/json"}
        held = [
            asyncio.create_task(client.post("/v1/verify", content=slow(), headers=greedy))
            for _ in range(2)
        ]
        while app.state.service._under_way < 2:
            await asyncio.sleep(0.01)
        more = await client.post("/v1/verify", json=SAME, headers=greedy)
        other = await client.post("/v1/verify", json=SAME, headers={"X-Api-Key": KEY})
        release.set()
        await asyncio.gather(*held)
        return [more, other, await client.post("/v1/verify", json=SAME, headers=greedy)]

    more, other, later = talk(app, story)
    assert (more.status_code, more.headers["retry-after"]) == (429, "1")
    assert other.status_code == 200
    # What was refused is not counted: the third of three a day is still to come.
    assert later.status_code == 200


def test_a_client_without_others_has_every_place() -> None:
    two = {"a": KeyEntry(key=KEY), "b": KeyEntry(key="b" * 16)}
    assert ServiceSettings(max_waiting=8).max_per_client == 8
    assert ServiceSettings(max_waiting=8, keys={"a": two["a"]}).max_per_client == 8
    assert ServiceSettings(max_waiting=8, keys=two).max_per_client == 2
    assert ServiceSettings(max_waiting=2, keys=two).max_per_client == 1


def test_a_body_needs_some_time() -> None:
    with pytest.raises(SpecError, match="above 0"):
        ServiceSettings(body_seconds=0)


def test_there_is_a_reader_for_each_core_the_process_may_use(
    toy: OnnxModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
    assert app_of(toy).state.service._readers._max_workers == 1


def test_keys_are_the_bytes_a_client_sends(toy: OnnxModel) -> None:
    keys = ["schlüssel-schlüssel", "ключ-ключ-ключ-ключ"]
    hashed = hashlib.sha256(keys[1].encode()).hexdigest()
    app = app_of(toy, keys={"a": KeyEntry(key=keys[0]), "b": KeyEntry(sha256=hashed)})
    for key in keys:
        assert ask(app, json=SAME, headers={b"X-Api-Key": key.encode()}).status_code == 200
    assert ask(app, json=SAME, headers={b"X-Api-Key": b"\xff" * 16}).status_code == 401


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("localhost", True),
        ("LocalHost:8600", True),
        ("127.0.0.1:8600", True),
        ("127.8.9.10", True),
        ("[::1]", True),
        ("[::1]:8600", True),
        ("", False),
        ("attacker.example:8600", False),
        ("localhost.attacker.example", False),
        ("127.0.0.1.attacker.example", False),
        ("attacker.example@127.0.0.1", False),
        ("192.168.1.7:8600", False),
        ("0.0.0.0:8600", False),
        ("[::]:8600", False),
        ("[::1", False),
    ],
)
def test_without_keys_only_this_machine_is_answered(toy: OnnxModel, host: str, local: bool) -> None:
    app = app_of(toy)

    async def story(client: httpx.AsyncClient) -> list[httpx.Response]:
        client.headers["host"] = host
        asked = [await client.get(path) for path in ("/v1/health", "/openapi.json", "/nothing")]
        return [await client.post("/v1/verify", json=SAME), *asked]

    answers = talk(app, story)
    statuses = [answer.status_code for answer in answers]
    assert statuses == ([200, 200, 200, 404] if local else [421] * 4)
    assert local or answers[0].json()["error"]["code"] == "wrong_host"
    assert local or answers[0].headers["connection"] == "close"


def test_with_keys_the_service_may_have_any_name(toy: OnnxModel) -> None:
    app = app_of(toy, keys={"a": KeyEntry(key=KEY)})
    headers = {"host": "verify.example", "X-Api-Key": KEY}
    assert ask(app, json=SAME, headers=headers).status_code == 200


def test_a_blocked_client_stays_out_and_others_do_not(toy: OnnxModel) -> None:
    keys = {"honest": KeyEntry(key=KEY), "walker": KeyEntry(key="w" * 16)}
    app = app_of(toy, keys=keys, watch=WatchSettings(action="block", neighbours=5, memory=50))
    start, end = pattern(1).astype(float), pattern(2).astype(float)
    steps = [encoded((start + (end - start) * k / 400).astype(np.uint8)) for k in range(30)]

    async def story(client: httpx.AsyncClient) -> tuple[list[int], list[int]]:
        walk = [
            await client.post(
                "/v1/verify",
                json=question(step, encoded(pattern(3))),
                headers={"X-Api-Key": "w" * 16},
            )
            for step in steps
        ]
        honest = [
            await client.post(
                "/v1/verify",
                json=question(encoded(pattern(k)), encoded(pattern(k, 1))),
                headers={"X-Api-Key": KEY},
            )
            for k in range(30)
        ]
        return [a.status_code for a in walk], [a.status_code for a in honest]

    walk, honest = talk(app, story)
    assert honest == [200] * 30
    assert walk.index(403) < 12 and set(walk[walk.index(403) :]) == {403}


def test_a_flagged_client_is_served_and_reported(
    toy: OnnxModel, caplog: pytest.LogCaptureFixture
) -> None:
    app = app_of(toy, watch=WatchSettings(action="flag", neighbours=5, memory=50))
    start, end = pattern(1).astype(float), pattern(2).astype(float)
    steps = [encoded((start + (end - start) * k / 400).astype(np.uint8)) for k in range(12)]

    async def story(client: httpx.AsyncClient) -> list[int]:
        asked = [question(step, encoded(pattern(3))) for step in steps]
        return [(await client.post("/v1/verify", json=each)).status_code for each in asked]

    with caplog.at_level(logging.INFO, "onnxfr.service"):
        assert talk(app, story) == [200] * 12
    alarms = [record for record in caplog.records if record.msg == "query_attack"]
    assert alarms and alarms[0].fields["client"] == "anonymous"  # type: ignore[attr-defined]


def test_the_log_is_json_without_pictures_or_keys(
    toy: OnnxModel, caplog: pytest.LogCaptureFixture
) -> None:
    from onnxfr.service.logs import JsonLines

    app = app_of(toy, keys={"alice": KeyEntry(key=KEY)})
    with caplog.at_level(logging.INFO, "onnxfr.service"):
        ask(app, json=SAME, headers={"X-Api-Key": KEY})
    lines = [JsonLines().format(record) for record in caplog.records if record.msg == "verify"]
    content = json.loads(lines[0])
    assert content["client"] == "alice" and content["status"] == 200 and content["ms"] > 0
    assert KEY not in lines[0] and SAME["probe"][:20] not in lines[0]


def test_outside_addresses_need_keys(toy: OnnxModel) -> None:
    with pytest.raises(SpecError, match="--keys"):
        serve(Verifier(toy, 0.5), ServiceSettings(), host="0.0.0.0", port=0, ready=lambda url: None)
