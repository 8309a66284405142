"""Request signatures that no template can express, each checked against its vendor's example."""

from __future__ import annotations

import base64
import hashlib
import hmac
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import format_datetime
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from onnxfr.errors import RemoteError
from onnxfr.registry import Registry


@dataclass(frozen=True)
class Unsigned:
    """A request on its way to its signature."""

    method: str
    url: str
    query: dict[str, str]
    headers: dict[str, str]
    content: bytes


Signer = Callable[[Unsigned, Mapping[str, str], float], Unsigned]
"""``(request, settings, seconds since 1970) -> request``."""

SIGNERS: Registry[Signer] = Registry("request signer")


@SIGNERS.register("aws_sigv4")
def aws_sigv4(request: Unsigned, settings: Mapping[str, str], clock: float) -> Unsigned:
    """AWS Signature Version 4; settings key_id, key, region, service."""
    key_id, key, region, service = _settings(settings, "key_id", "key", "region", "service")
    moment = datetime.fromtimestamp(clock, UTC)
    stamp, day = moment.strftime("%Y%m%dT%H%M%SZ"), moment.strftime("%Y%m%d")
    headers = {**request.headers, "Host": _host(request.url), "X-Amz-Date": stamp}
    signed, canonical = _canonical(request, headers, _encoded_query(request))
    scope = f"{day}/{region}/{service}/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, _sha256(canonical.encode())])
    signature = _chain(f"AWS4{key}", day, region, service, "aws4_request", text)
    headers["Authorization"] = (
        f"AWS4-HMAC-SHA256 Credential={key_id}/{scope}, SignedHeaders={signed}, "
        f"Signature={signature}"
    )
    return replace(request, headers=headers)


@SIGNERS.register("tencent_tc3")
def tencent_tc3(request: Unsigned, settings: Mapping[str, str], clock: float) -> Unsigned:
    """Tencent Cloud's TC3-HMAC-SHA256; settings key_id, key, service."""
    key_id, key, service = _settings(settings, "key_id", "key", "service")
    day = datetime.fromtimestamp(clock, UTC).strftime("%Y-%m-%d")
    headers = {**request.headers, "Host": _host(request.url)}
    covered = {
        name: text for name, text in headers.items() if name.lower() in ("content-type", "host")
    }
    signed, canonical = _canonical(request, covered, _encoded_query(request))
    scope = f"{day}/{service}/tc3_request"
    text = "\n".join(["TC3-HMAC-SHA256", str(int(clock)), scope, _sha256(canonical.encode())])
    signature = _chain(f"TC3{key}", day, service, "tc3_request", text)
    headers["X-TC-Timestamp"] = str(int(clock))
    headers["Authorization"] = (
        f"TC3-HMAC-SHA256 Credential={key_id}/{scope}, SignedHeaders={signed}, "
        f"Signature={signature}"
    )
    return replace(request, headers=headers)


@SIGNERS.register("iflytek_hmac")
def iflytek_hmac(request: Unsigned, settings: Mapping[str, str], clock: float) -> Unsigned:
    """IFLYTEK's signature of host, date and request line; settings key_id, key."""
    key_id, key = _settings(settings, "key_id", "key")
    date = format_datetime(datetime.fromtimestamp(clock, UTC), usegmt=True)
    host, path = _host(request.url), urlsplit(request.url).path
    text = f"host: {host}\ndate: {date}\n{request.method} {path} HTTP/1.1"
    signature = _base64(hmac.new(key.encode(), text.encode(), hashlib.sha256).digest())
    authorization = (
        f'api_key="{key_id}", algorithm="hmac-sha256", headers="host date request-line", '
        f'signature="{signature}"'
    )
    query = {"authorization": _base64(authorization.encode()), "host": host, "date": date}
    return replace(request, query={**request.query, **query})


@SIGNERS.register("aliyun_rpc")
def aliyun_rpc(request: Unsigned, settings: Mapping[str, str], clock: float) -> Unsigned:
    """Aliyun's RPC signature version 1.0 over form and query; settings key_id, key.

    ``nonce`` may be set for tests; it is random otherwise.
    """
    key_id, key = _settings(settings, "key_id", "key")
    query = {
        **request.query,
        "AccessKeyId": key_id,
        "SignatureMethod": "HMAC-SHA1",
        "SignatureVersion": "1.0",
        "SignatureNonce": settings.get("nonce") or str(uuid.uuid4()),
        "Timestamp": datetime.fromtimestamp(clock, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    form = dict(parse_qsl(request.content.decode(), keep_blank_values=True))
    everything = "&".join(
        f"{_percent(name)}={_percent(text)}" for name, text in sorted({**query, **form}.items())
    )
    to_sign = f"{request.method}&{_percent('/')}&{_percent(everything)}"
    digest = hmac.new(f"{key}&".encode(), to_sign.encode(), hashlib.sha1).digest()
    return replace(request, query={**query, "Signature": _base64(digest)})


def _settings(settings: Mapping[str, str], *names: str) -> list[str]:
    missing = [name for name in names if name not in settings]
    if missing:
        raise RemoteError(f"the signer needs {', '.join(missing)} under [steps.signing]")
    return [settings[name] for name in names]


def _canonical(request: Unsigned, headers: Mapping[str, str], query: str) -> tuple[str, str]:
    lower = {name.lower(): " ".join(text.split()) for name, text in headers.items()}
    names = ";".join(sorted(lower))
    lines = "".join(f"{name}:{lower[name]}\n" for name in sorted(lower))
    path = urlsplit(request.url).path or "/"
    parts = [request.method, path, query, lines, names, _sha256(request.content)]
    return names, "\n".join(parts)


def _encoded_query(request: Unsigned) -> str:
    return urlencode(sorted(request.query.items()), quote_via=quote, safe="-_.~")


def _chain(key: str, *texts: str) -> str:
    digest = key.encode()
    for text in texts:
        digest = hmac.new(digest, text.encode(), hashlib.sha256).digest()
    return digest.hex()


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _percent(text: str) -> str:
    return quote(text, safe="-_.~")
