"""host: addresses of exec servers, and their command line."""

import os
from pathlib import Path
from typing import Any

import pytest

from app_server.cli import exec_server as exec_cli
from app_server.host.exec.client import address as addresses
from app_server.host.exec.client.address import BadAddress, parse_exec_address
from app_server.host.exec.protocol import ProtocolBroken, unpack
from app_server.peer.token_file import take_token
from tests.support.harness import claim


def shown(url: str, **more: Any) -> str:
    given = {"token": None, "request_id": None, "connect_ms": None, **more}
    return parse_exec_address(url, **given).shown


@claim("environment:add-refused")
@pytest.mark.parametrize(
    ("url", "more", "reason"),
    [
        ("", {}, "remote environment requires an exec-server url"),
        ("none", {}, "remote environment cannot use disabled exec-server url"),
        *(
            (url, {}, "exec-server url must be ws://HOST:PORT or wss://HOST:PORT")
            for url in (
                *("nonsense", "http://127.0.0.1:1", "ws://", "wss://x y", "ws://h:99999"),
                *("ws://h#f", "ws://[::1"),
            )
        ),
        ("ws://h/" + "x" * 8192, {}, "exec-server url must have at most 8192 characters"),
        (
            "ws://user:secret@127.0.0.1:1",
            {},
            "exec-server url must not hold credentials; use authBearerToken",
        ),
        *(
            (
                "ws://192.0.2.1:1",
                more,
                "exec-server WebSocket headers require wss:// or a loopback destination",
            )
            for more in ({"token": "secret"}, {"request_id": "r"})
        ),
        (
            "ws://127.0.0.1:1",
            {"token": "a\nsecret"},
            "invalid value for exec-server WebSocket header `authorization`",
        ),
        (
            "wss://h",
            {"request_id": "x" * 8193},
            "invalid value for exec-server WebSocket header `x-request-id`",
        ),
    ],
)
def test_an_address_that_cannot_be_right_is_refused(
    url: str, more: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BadAddress) as caught:
        shown(url, **more)
    assert str(caught.value) == reason


def test_headers_go_to_secure_and_loopback_addresses() -> None:
    for url in ("ws://127.0.0.1:1", "ws://localhost:1", "ws://[::1]:1", "wss://192.0.2.1/a"):
        assert shown(f" {url} ", token="t", request_id="r") == url
    address = parse_exec_address("wss://h/a?key=secret", "t", "r", 0)
    assert (address.shown, address.is_loopback, address.connect_s) == ("wss://h/a", False, 0.001)
    assert address.headers == {"Authorization": "Bearer t", "X-Request-ID": "r"}
    assert "secret" not in repr(address) + repr(parse_exec_address("wss://h", "secret", None, 1))
    assert parse_exec_address("ws://h:1", None, None, None).connect_s == addresses.DEFAULT_CONNECT_S
    assert parse_exec_address("ws://h:1", None, None, 10**18).connect_s == 300.0


def test_a_frame_without_sense_is_refused() -> None:
    with pytest.raises(ProtocolBroken):
        unpack(b"\0\0\0\0")
    assert unpack(b"\2\0\0\1\0data") == ("stderr", 256, b"data")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--listen", "ws://0.0.0.0:1"], "refusing to listen on 0.0.0.0 without a token"),
        (["--listen", "http://127.0.0.1:1"], "use ws://IP:PORT"),
        (["--listen", "ws://localhost:1"], "use ws://IP:PORT"),
        (["--listen", "ws://127.0.0.1"], "the port is missing"),
        (["--listen", "ws://127.0.0.1:1/path"], "use ws://IP:PORT"),
        (
            ["--token-file", "/no/such"],
            "the token file cannot be read: /no/such: No such file or directory",
        ),
        (["nonsense"], "unrecognized arguments"),
    ],
)
def test_a_wrong_call_of_the_exec_server_says_what_would_be_right(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        exec_cli.main(arguments)
    assert caught.value.code == 2
    assert complaint in capsys.readouterr().err


def test_a_token_is_read_from_the_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text(" from the file \n")
    monkeypatch.setenv(exec_cli.TOKEN_VARIABLE, "from the environment")
    assert take_token("token", exec_cli.TOKEN_VARIABLE, file) == "from the file"
    assert exec_cli.TOKEN_VARIABLE not in os.environ
    assert take_token("token", exec_cli.TOKEN_VARIABLE, None) is None
    monkeypatch.setenv(exec_cli.TOKEN_VARIABLE, "from the environment")
    assert take_token("token", exec_cli.TOKEN_VARIABLE, None) == "from the environment"
    exec_cli.require_token("0.0.0.0", "t")
    for wrong in ("", "a\nb", "ä", "x" * 4097):
        file.write_text(wrong)
        with pytest.raises(ValueError, match="printable ASCII"):
            take_token("token", exec_cli.TOKEN_VARIABLE, file)
