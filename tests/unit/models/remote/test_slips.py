"""Slips of the pen in adapters, and surroundings that would cost money or give a key away."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from toy_service import KEY, Reply, adapter_of, ask, serving

from onnxfr.errors import RemoteError
from onnxfr.models.remote.filling import fill, make_request
from onnxfr.models.remote.model import RemoteModel
from onnxfr.models.remote.reading import Kind, NoUse
from onnxfr.models.remote.secrecy import Veil

SECRET = "sekret-key-123456"
KEYS = "secret.key"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, SECRET)


@pytest.mark.parametrize("place", ["secret.api-key", " probe ", "Probe", "secret.", ""])
def test_a_place_that_is_none_is_told_before_anything_is_sent(place: str) -> None:
    values = {"probe": b"picture", "secret.key": "k", "secret.api-key!": "x"}
    with pytest.raises(RemoteError, match="it may hold: probe"):
        fill(f"a ${{{place}}} b", values)
    assert fill("${secret.api-key!}", values) == "x"


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize(
    "slip",
    [
        {"body": {"a": ["${ probe }"]}},
        {"body": {"${captured.n}": 1}},
        {"encoding": "raw", "body": "${Reference}"},
        {"query": {"set": "${parameter.face-set}"}},
        {"query": {"${parameter.face-set}": "1"}},
        {"signing": {"key": "${secret.api-key}"}},
    ],
)
def test_an_adapter_with_such_a_place_is_refused_before_its_first_step(
    tmp_path: Path, slip: dict[str, Any], at: int
) -> None:
    adapter = adapter_of("http://127.0.0.1:9/", "http://127.0.0.1:9/")
    steps = list(adapter.steps)
    steps[at] = steps[at].model_copy(update=slip)
    model = RemoteModel(adapter.model_copy(update={"steps": tuple(steps)}), tmp_path / "j")
    with pytest.raises(RemoteError, match="it may hold"):
        model.open()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["rejected", "retry", "failed"])
def test_what_the_last_answer_lacks_is_not_sought_in_the_first(
    open_model: Callable[..., RemoteModel], kind: str
) -> None:
    rule = f'{kind} = [{{ path = "faces", absent = true }}]'

    def say(number: int) -> Reply:
        last = {"match": True} if number == 4 else {"match": True, "faces": [1]}
        return Reply(last if number % 2 == 0 else {"match": "token"})

    with serving(say) as service:
        pace = "retries = 0\nconcurrency = 1"
        model = open_model(adapter_of(service.url, service.url, answer=rule, pace=pace))
        (first,) = ask(model)
        assert first is not None and first.kind is Kind.JUDGED and len(service.calls) == 2
        if kind == "rejected":
            second = ask(model, 2)[1]
            assert second is not None and second.kind is Kind.REJECTED
        else:
            with pytest.raises(RemoteError):
                ask(model, 2)
    assert len(service.calls) == 4


def test_a_key_that_a_service_repeats_is_written_nowhere(
    open_model: Callable[..., RemoteModel], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    echo = f"you came with Bearer {SECRET}"
    cut = {"headers": "x" * 270 + f" Bearer {SECRET} " + "y" * 99}
    says = {
        1: Reply(cut),
        2: Reply({"error": echo}, 503),
        3: Reply(echo.encode(), 401),
    }
    caplog.set_level(logging.DEBUG)
    with serving(lambda number: says[number]) as service:
        model = open_model(adapter_of(service.url, pace="concurrency = 1\nretries = 1"))
        (verdict,) = ask(model)
        assert verdict is not None and verdict.kind is Kind.INVALID and "***" in verdict.detail
        with pytest.raises(NoUse, match=r"Bearer \*\*\*") as refused:
            ask(model, 2)
        with pytest.raises(NoUse) as again:
            ask(model, 2)
    kept = (tmp_path / "j").read_text() + caplog.text + str(refused.value) + str(again.value)
    assert SECRET[:7] not in kept and len(service.calls) == 3


def test_a_veil_knows_keys_as_json_and_addresses_write_them_and_cut_off() -> None:
    veil = Veil(["sek/ret+key=12", "sek/ret", "short", 'quo"te-key'])
    assert veil("a sek/ret+key=12 b sek/ret c") == "a *** b *** c"
    assert veil(r"a sek\/ret+key=12, quo\"te-key") == "a ***, ***"
    assert veil("k=sek%2Fret%2Bkey%3D12&x") == "k=***&x"
    assert veil("it was sek/ret+ke...") == "it was ***..."
    assert veil("short text sek...") == "short text sek..."


@pytest.mark.parametrize("value", ["abcDEF123/456xyz789", "12345/456xyz789", "a@127.0.0.2#?:b%"])
def test_a_key_within_an_address_is_sent_whole_and_cuts_it_nowhere(
    open_model: Callable[..., RemoteModel], monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    import httpx

    monkeypatch.setenv(KEY, value)
    with serving(lambda _: Reply()) as service:
        url = service.url.replace("//", "//me:${secret.key}@") + "/compare/${secret.key}"
        adapter = adapter_of(url)
        request = make_request(adapter.steps[0], {"probe": b"", "reference": b"", KEYS: value}, 0.0)
        sent = httpx.URL(request.url)
        assert sent.host == "127.0.0.1" and sent.password == value
        assert sent.path == f"/compare/{value}"
        (verdict,) = ask(open_model(adapter))
    assert verdict is not None and verdict.match and len(service.calls) == 1


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:${secret.key}/x", "http://127.0.0.1:1${captured.m}/x"]
)
def test_an_address_that_is_none_shows_no_key(
    open_model: Callable[..., RemoteModel], monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv(KEY, "abcDEF123/456xyz789")
    with serving(lambda _: Reply({"match": "DEF/abc"})) as service:
        model = open_model(adapter_of(service.url, url))
        with pytest.raises(RemoteError, match="its address is none") as told:
            ask(model)
    assert "abc" not in str(told.value)


def test_a_host_that_a_key_or_an_answer_decides_is_told_before_anything_is_sent(
    tmp_path: Path,
) -> None:
    for host in ("${secret.key}.example", "${captured.m}.example"):
        adapter = adapter_of("http://127.0.0.1:9/", f"https://{host}/x")
        model = RemoteModel(adapter, tmp_path / "j", budget=5, authorised=True)
        with pytest.raises(RemoteError, match="put it under") as told:
            model.open()
        assert SECRET not in str(told.value) and not list(tmp_path.iterdir())


@pytest.mark.parametrize("proxy", ["socks://127.0.0.1:7890/", "socks5://127.0.0.1:9"])
def test_a_proxy_that_cannot_be_used_is_an_error_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv("ALL_PROXY", proxy)
    adapter = adapter_of("https://verifier.example/")
    place = tmp_path / "j"
    model = RemoteModel(adapter, place, budget=5, authorised=True)
    with pytest.raises(RemoteError, match=r"proxy that .*ALL_PROXY names cannot be used"):
        model.open()
    opened = (each.readlink() for each in Path("/proc/self/fd").glob("*") if each.is_symlink())
    assert place not in opened


def test_a_proxy_that_refuses_costs_nothing(
    open_model: Callable[..., RemoteModel], monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpx

    def refuse(*_: object, **__: object) -> None:
        raise httpx.ProxyError("407 Proxy Authentication Required")

    model = open_model(adapter_of("http://127.0.0.1:9/", pace="retries = 1"))
    monkeypatch.setattr(httpx.Client, "stream", refuse)
    with pytest.raises(RemoteError, match="407 Proxy"):
        ask(model)
    assert model.journal.spent == 0
