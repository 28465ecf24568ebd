"""oauth: the file and the keyring with tokens of MCP servers."""

import fcntl
import importlib.machinery
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

# Imported here so that no test waits for it.
import app_server.handlers.integrations.mcp
import app_server.mcp.oauth.authorization  # noqa: F401
from app_server.mcp.errors import OAuthFailed
from app_server.mcp.oauth.credentials import Credential, CredentialStore, credential_key
from tests.support.harness import claim
from tests.support.mcp_peers.oauth_peer import MARK
from tests.support.mcp_peers.sign_in import (
    FakeKeyring,
    stored,
)


@claim("oauth:store-kept")
def test_what_the_file_holds_besides_stays(tmp_path: Path) -> None:
    url = "http://127.0.0.1:1/mcp"
    key = credential_key("web", url)
    before = {"other|0": {"anything": [1]}, key: {"more": True, "access_token": 5}, "odd": 1}
    file = tmp_path / ".credentials.json"
    file.write_text(json.dumps(before))
    store = CredentialStore(tmp_path, "auto")
    assert store.load("web", url) is None
    credential = Credential("web", url, "https://i", "c", "a", 7, "r", ("s",))
    store.save(credential)
    assert stored(tmp_path) == {**before, key: {"more": True, **credential.render()}}
    assert store.load("web", url) == credential
    with_secret = replace(credential, client_secret="s", client_auth_method="client_secret_post")
    store.save(with_secret)
    assert store.load("web", url) == with_secret
    store.save(credential)
    assert store.load("web", url) == credential
    assert sorted(path.name for path in tmp_path.iterdir()) == [".credentials.json", "locks"]
    assert MARK not in repr(Credential("web", url, "i", "c", MARK, 7, MARK, (), MARK))
    for content in ("[]", "{", "{" + " " * 5_000_000 + "}"):
        file.write_text(content)
        with pytest.raises(OAuthFailed, match="not a JSON object"):
            store.save(credential)
        assert file.read_text() == content


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    credential = Credential("web", "u", "i", "c", "a")
    home = tmp_path / "home"
    home.write_text("a file")
    with pytest.raises(OAuthFailed, match="Not a directory"):
        CredentialStore(home, "file").save(credential)
    (tmp_path / ".credentials.json").mkdir()
    with pytest.raises(OAuthFailed, match="Is a directory"):
        CredentialStore(tmp_path, "file").load("web", "u")


def test_a_write_does_not_wait_for_another_process_for_ever(tmp_path: Path) -> None:
    store = CredentialStore(tmp_path, "file")
    store.lock_wait_s = 0
    first, second = (Credential("web", "u", "i", "c", token) for token in ("a", "b"))
    store.save(first)
    lock = tmp_path / "locks" / "credentials.lock"
    with lock.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(OAuthFailed, match=f"^{lock}: another process has held it for 0 s$"):
            store.save(second)
    assert store.load("web", "u") == first
    store.save(second)
    assert store.load("web", "u") == second


def test_a_keyring_is_used_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    credential = Credential("web", "u", "i", "c", "a")
    with pytest.raises(OAuthFailed, match="`keyring` is not installed"):
        CredentialStore(tmp_path, "keyring").save(credential)
    ring = FakeKeyring()
    ring.__spec__ = importlib.machinery.ModuleSpec("keyring", None)
    monkeypatch.setitem(sys.modules, "keyring", ring)
    CredentialStore(tmp_path, "file").save(credential)
    CredentialStore(tmp_path, "keyring").save(credential)
    # What the keyring has is not left lying in the file.
    assert stored(tmp_path) == {}
    (tmp_path / ".credentials.json").unlink()
    for kind in ("keyring", "auto"):
        store = CredentialStore(tmp_path, kind)
        store.save(credential)
        assert json.loads(ring.kept["app-server MCP credentials", credential.key])
        assert store.load("web", "u") == credential
        assert not (tmp_path / ".credentials.json").exists()
        ring.kept.clear()
        assert store.load("web", "u") is None
    ring.broken = True
    with pytest.raises(OAuthFailed, match=r"^the keyring cannot be used: RuntimeError$"):
        CredentialStore(tmp_path, "keyring").load("web", "u")
    # A keyring that cannot be used counts as none.
    CredentialStore(tmp_path, "auto").save(credential)
    assert CredentialStore(tmp_path, "auto").load("web", "u") == credential
    assert CredentialStore(tmp_path, "file").load("web", "u") == credential
