"""cli: the options that guard listeners, each with its rule."""

import argparse
import hashlib
from pathlib import Path

import pytest

from app_server.cli.serve import add_options, read_guards
from app_server.transport.address import Address, StdioAddress, TcpAddress, UnixAddress
from app_server.transport.guards import CapabilityAuth, ListenerGuards, SignedAuth

LOCAL = TcpAddress("127.0.0.1", 0)
PUBLIC = TcpAddress("0.0.0.0", 0)
SECRET = "a secret of more than thirty-two bytes"
DIGEST = hashlib.sha256(b"token").digest()


def read(*words: str, listen: Address = LOCAL) -> ListenerGuards:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return read_guards(parser.parse_args(words), [listen])


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write files with tokens and secrets, and go to their folder."""
    contents = {
        "token": b"  token\n\n",
        "secret": SECRET.encode() + b"\r\n",
        "umlaut": "\xe4".encode() * 32,
        "short": b"x" * 31,
        "empty": b" \n",
        "long": b"x" * 4097,
        "lines": b"one\ntwo\n",
        "bytes": bytes(range(128, 192)),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_options_say_what_clients_must_show(files: Path) -> None:
    capability = ("--ws-auth", "capability-token")
    signed = ("--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", "secret")
    assert read() == ListenerGuards()
    assert read(*capability, "--ws-token-file", "token").auth == CapabilityAuth(
        DIGEST, files / "token"
    )
    digest = DIGEST.hex().upper()
    assert read(*capability, "--ws-token-sha256", f" {digest} ").auth == CapabilityAuth(DIGEST)
    assert read(*signed).auth == SignedAuth(SECRET.encode(), file=files / "secret")
    claims = ("--ws-issuer", " me ", "--ws-audience", " ", "--ws-max-clock-skew-seconds", "0")
    chosen = SignedAuth(SECRET.encode(), "me", None, 0, files / "secret")
    assert read(*signed, *claims).auth == chosen
    umlaut = SignedAuth("\xe4".encode() * 32, file=files / "umlaut")
    assert read(*signed[:3], "umlaut").auth == umlaut
    # Codex takes them with every listener, and so do we.
    for listen in (StdioAddress(), UnixAddress(Path("/s")), PUBLIC):
        assert read(*capability, "--ws-token-file", "token", listen=listen).wants_token


def test_files_with_secrets_are_hidden_from_commands(files: Path) -> None:
    signed = ("--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", "secret")
    assert read(*signed).hidden_files == (files / "secret",)
    made = ("--token-file", "made")
    assert read(*signed, *made).hidden_files == (files / "secret", files / "made")
    capability = ("--ws-auth", "capability-token", "--ws-token-file", "token")
    assert read(*capability).hidden_files == (files / "token",)
    assert read().hidden_files == ()


@pytest.mark.usefixtures("files")
def test_secrets_are_not_shown() -> None:
    signed = ("--ws-auth", "signed-bearer-token", "--ws-shared-secret-file", "secret")
    assert SECRET not in repr(read(*signed))
    capability = ("--ws-auth", "capability-token", "--ws-token-file", "token")
    assert DIGEST.hex() not in repr(read(*capability))
    assert "sha256" not in repr(read(*capability).auth)


def test_a_token_file_is_a_guard_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/me")
    assert read("--token-file", "t").token_file == tmp_path / "t"
    assert read("--token-file", "~/t", listen=PUBLIC).token_file == Path("/home/me/t")
    assert list(tmp_path.iterdir()) == []


def test_origins_are_written_as_browsers_do() -> None:
    cases = {
        "https://Tools.Example.com": "https://tools.example.com",
        "https://tools.example.com:443": "https://tools.example.com",
        "http://localhost:80": "http://localhost",
        "http://localhost:443": "http://localhost:443",
        "http://[::1]:8080": "http://[::1]:8080",
        "vscode-webview://1a2b3c": "vscode-webview://1a2b3c",
        "chrome-extension://abc": "chrome-extension://abc",
    }
    words = [word for origin in cases for word in ("--ws-allow-origin", origin)]
    assert read("--token-file", "t", *words).origins == set(cases.values())


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--ws-auth capability-token", "needs either --ws-token-file or --ws-token-sha256"),
        (
            f"--ws-auth capability-token --ws-token-file token --ws-token-sha256 {DIGEST.hex()}",
            "needs either --ws-token-file or --ws-token-sha256",
        ),
        ("--ws-auth capability-token --ws-token-sha256 abc", "64 hexadecimal digits"),
        (f"--ws-auth capability-token --ws-token-sha256 {'g' * 64}", "64 hexadecimal digits"),
        (
            "--ws-auth capability-token --ws-token-file token --ws-issuer me",
            "--ws-issuer needs --ws-auth signed-bearer-token",
        ),
        ("--ws-auth capability-token --ws-token-file empty", "--ws-token-file: the file must hold"),
        ("--ws-auth capability-token --ws-token-file long", "1 to 4096 bytes of UTF-8 text"),
        ("--ws-auth capability-token --ws-token-file bytes", "1 to 4096 bytes of UTF-8 text"),
        ("--ws-auth capability-token --ws-token-file lines", "printable ASCII characters on one"),
        ("--ws-auth capability-token --ws-token-file umlaut", "printable ASCII characters on one"),
        ("--ws-auth signed-bearer-token", "needs --ws-shared-secret-file"),
        (
            "--ws-auth signed-bearer-token --ws-shared-secret-file short",
            "a secret has at least 32 bytes",
        ),
        (
            "--ws-auth signed-bearer-token --ws-shared-secret-file secret --ws-token-file token",
            "--ws-token-file needs --ws-auth capability-token",
        ),
        ("--ws-token-file token", "--ws-token-file needs --ws-auth capability-token"),
        ("--ws-audience me", "--ws-audience needs --ws-auth signed-bearer-token"),
        ("--ws-max-clock-skew-seconds 0", "needs --ws-auth signed-bearer-token"),
        ("--ws-allow-origin https://a.com", "needs --ws-auth or --token-file"),
        ("--token-file t --ws-allow-origin *", "an origin is a scheme, a host"),
        ("--token-file t --ws-allow-origin https://*.a.com", "an origin is a scheme, a host"),
        ("--token-file t --ws-allow-origin null", "an origin is a scheme, a host"),
        ("--token-file t --ws-allow-origin https://a.com/", "an origin is a scheme, a host"),
        ("--token-file t --ws-allow-origin a.com", "an origin is a scheme, a host"),
    ],
)
def test_a_wrong_combination_names_the_option_and_its_rule(words: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=r"--") as caught:
        read(*words.split())
    assert complaint in str(caught.value)


@pytest.mark.parametrize("seconds", ["-1", "86401", "x", "9" * 30])
def test_the_skew_of_clocks_has_a_bound(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read("--ws-max-clock-skew-seconds", seconds)
    assert "--ws-max-clock-skew-seconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "option"),
    [
        ("capability-token", "--ws-token-file"),
        ("signed-bearer-token", "--ws-shared-secret-file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_option(
    kind: str, option: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=f"^{option}: {tmp_path} cannot be read: Is a directory$"):
        read("--ws-auth", kind, option, str(tmp_path))


def test_a_token_file_without_an_address_for_it_is_refused() -> None:
    with pytest.raises(ValueError, match="--token-file is for ws:// addresses"):
        read("--token-file", "t", listen=StdioAddress())


def test_addresses_that_others_can_reach_need_a_token() -> None:
    with pytest.raises(ValueError, match=r"refusing to listen on 0\.0\.0\.0 without a token"):
        read(listen=PUBLIC)
