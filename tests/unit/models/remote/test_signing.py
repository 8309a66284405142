"""Signatures against the examples their vendors publish."""

from __future__ import annotations

import calendar

import pytest

from onnxfr.errors import RemoteError
from onnxfr.models.remote.adapter import read_adapter
from onnxfr.models.remote.filling import make_request
from onnxfr.models.remote.signing import (
    SIGNERS,
    Unsigned,
    aliyun_rpc,
    aws_sigv4,
    iflytek_hmac,
    tencent_tc3,
)

AWS_EXAMPLE = {
    "key_id": "AKIDEXAMPLE",
    "key": "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    "region": "us-east-1",
}
AWS_MOMENT = calendar.timegm((2015, 8, 30, 12, 36, 0))


def test_aws_signature_version_4() -> None:
    request = Unsigned(
        "GET",
        "https://iam.amazonaws.com/",
        {"Action": "ListUsers", "Version": "2010-05-08"},
        {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"},
        b"",
    )
    signed = aws_sigv4(request, {**AWS_EXAMPLE, "service": "iam"}, AWS_MOMENT)
    assert signed.headers["X-Amz-Date"] == "20150830T123600Z"
    assert signed.headers["Authorization"] == (
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request, "
        "SignedHeaders=content-type;host;x-amz-date, "
        "Signature=5d672d79c15b13162d9279b0855cfba6789a8edb4c82c400e06b5924a6f2b5d7"
    )


def test_aws_signs_the_token_of_temporary_credentials() -> None:
    """AWS's test suite calls this request post-sts-header-before."""
    token = (
        "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwA"
        "eMicRXmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8p"
        "hUZampKsburEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT"
        "38xVqr7ZD0u0iPPkUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabI"
        "Qwj2ICCR/oLxBA=="
    )
    request = Unsigned(
        "POST", "https://example.amazonaws.com/", {}, {"X-Amz-Security-Token": token}, b""
    )
    signed = aws_sigv4(request, {**AWS_EXAMPLE, "service": "service"}, AWS_MOMENT)
    assert signed.headers["Authorization"].endswith(
        "SignedHeaders=host;x-amz-date;x-amz-security-token, "
        "Signature=85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead"
    )


@pytest.mark.parametrize("token", ["", "temporary"])
def test_the_aws_adapter_sends_a_token_where_there_is_one(token: str) -> None:
    values: dict[str, bytes | str] = {"probe": b"P", "reference": b"R"}
    values |= {"parameter.region": "r", "secret.key_id": "i", "secret.key": "k"}
    step = read_adapter("aws_compare_faces").steps[0]
    headers = make_request(step, {**values, "secret.token": token}, 1.7e9).headers
    assert headers.get("X-Amz-Security-Token", "") == token
    assert ("x-amz-security-token" in headers["Authorization"]) == bool(token)


def test_tencent_tc3() -> None:
    payload = (
        rb'{"Limit": 1, "Filters": [{"Values": ["\u672a\u547d\u540d"], "Name": "instance-name"}]}'
    )
    request = Unsigned(
        "POST",
        "https://cvm.tencentcloudapi.com/",
        {},
        {"Content-Type": "application/json; charset=utf-8"},
        payload,
    )
    # The published key ends in asterisks, and was signed with them.
    settings = {
        "key_id": "AKIDz8krbsJ5yKBZQpn74WFkmLPx3*******",
        "key": "Gu5t9xGARNpq86cd98joQYCN3*******",
        "service": "cvm",
    }
    signed = tencent_tc3(request, settings, 1551113065)
    assert signed.headers["Authorization"] == (
        "TC3-HMAC-SHA256 Credential=AKIDz8krbsJ5yKBZQpn74WFkmLPx3*******/2019-02-25/cvm/"
        "tc3_request, SignedHeaders=content-type;host, "
        "Signature=2230eefd229f582d8b1b891af7107b91597240707d778ab3738f756258d7652c"
    )


def test_aliyun_rpc() -> None:
    query = {"Action": "DescribeRegions", "Format": "XML", "Version": "2014-05-26"}
    settings = {
        "key_id": "testid",
        "key": "testsecret",
        "nonce": "3ee8c1b8-83d3-44af-a94f-4e0ad82fd6cf",
    }
    moment = calendar.timegm((2016, 2, 23, 12, 46, 24))
    signed = aliyun_rpc(
        Unsigned("GET", "http://ecs.aliyuncs.com/", query, {}, b""), settings, moment
    )
    assert signed.query["Signature"] == "OLeaidS1JvxuMvnyHOwuJ+uX5qY="


def test_iflytek_hmac() -> None:
    settings = {"key_id": "apikey" + "X" * 26, "key": "apisecret" + "X" * 23}
    request = Unsigned("POST", "https://api.xf-yun.com/v1/private/s67c9c78c", {}, {}, b"")
    signed = iflytek_hmac(request, settings, calendar.timegm((2020, 7, 17, 6, 26, 58)))
    assert signed.query == {
        "authorization": (
            "YXBpX2tleT0iYXBpa2V5WFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFgiLCBhbGdvcml0aG09ImhtYWMtc2hh"
            "MjU2IiwgaGVhZGVycz0iaG9zdCBkYXRlIHJlcXVlc3QtbGluZSIsIHNpZ25hdHVyZT0iSk5od3prMWtLYjUw"
            "dUVGbEUxS2xCbk83K09NTjNZUk5LZVFsYzVMYVltTT0i"
        ),
        "host": "api.xf-yun.com",
        "date": "Fri, 17 Jul 2020 06:26:58 GMT",
    }


@pytest.mark.parametrize("name", SIGNERS.names())
def test_a_signer_without_its_key_says_so(name: str) -> None:
    with pytest.raises(RemoteError, match="key_id"):
        SIGNERS.get(name)(Unsigned("POST", "https://a/", {}, {}, b""), {}, 0.0)
