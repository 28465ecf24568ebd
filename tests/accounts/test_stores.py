"""accounts: where credentials are kept, and their settings."""

import importlib.machinery
import json
import sys
from pathlib import Path
from typing import Any

import pytest

# Imported here so that no test waits for them.
from app_server.accounts.account_errors import (
    AccountError,
)
from app_server.accounts.account_settings import AccountSettings, read_account_settings
from app_server.accounts.store import AuthRecord, AuthStore
from app_server.config.values import Config, ConfigError
from tests.support.accounts.account import accounts
from tests.support.accounts.issuer_peer import make_id_token
from tests.support.harness import (
    claim,
)
from tests.support.large import Case, made
from tests.support.mcp_peers.sign_in import FakeKeyring


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ('{"auth_mode": "apikey", "OPENAI_API_KEY": "k"}', "apikey"),
        ('{"OPENAI_API_KEY": "k"}', "apikey"),
        ('{"auth_mode": "apikey"}', None),
        ('{"auth_mode": "what", "OPENAI_API_KEY": "k"}', None),
        ('{"auth_mode": ["x"], "OPENAI_API_KEY": "k"}', None),
        ('{"OPENAI_API_KEY": "a\\nb"}', None),
        ('{"tokens": {"access_token": "a", "id_token": "no"}}', None),
        ('{"tokens": {"id_token": "' + make_id_token() + '"}}', None),
        ('{"tokens": 5}', None),
        ("[]", None),
        ("{broken", None),
        (lambda: "{" + " " * 1_048_577 + "}", None),
    ],
)
@claim("account:file")
async def test_an_auth_file_with_wrong_members_is_kept_as_it_is(
    tmp_path: Path, content: Case[str], kind: str | None
) -> None:
    written = made(content)
    (tmp_path / "auth.json").write_text(written)
    found = (await accounts(tmp_path).load()).credentials
    assert (None if found is None else found.kind) == kind
    assert (tmp_path / "auth.json").read_text() == written


async def test_the_store_is_a_file_the_keyring_or_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = AuthRecord.of_api_key("sk")
    with pytest.raises(AccountError, match="`keyring` is not installed"):
        await AuthStore(tmp_path, "keyring").save(record)
    ephemeral = AuthStore(tmp_path, "ephemeral")
    await ephemeral.save(record)
    assert await ephemeral.load() == record
    await ephemeral.delete()
    assert await ephemeral.load() is None
    assert list(tmp_path.iterdir()) == []
    ring = ForgetfulKeyring()
    ring.__spec__ = importlib.machinery.ModuleSpec("keyring", None)
    monkeypatch.setitem(sys.modules, "keyring", ring)
    await AuthStore(tmp_path, "file").save(record)
    for kind in ("keyring", "auto"):
        store = AuthStore(tmp_path, kind)
        await store.save(record)
        # What the keyring has is not left lying in the file.
        assert not (tmp_path / "auth.json").exists()
        ((service, name), text) = next(iter(ring.kept.items()))
        assert (service, name[:4], json.loads(text)) == ("Codex Auth", "cli|", record.document)
        assert await store.load() == record
        await store.delete()
        assert ring.kept == {}
        assert await store.load() is None
    ring.broken = True
    with pytest.raises(AccountError, match=r"^the keyring cannot be used: RuntimeError$"):
        await AuthStore(tmp_path, "keyring").load()
    # A keyring that cannot be used counts as none.
    auto = AuthStore(tmp_path, "auto")
    await auto.save(record)
    assert await auto.load() == record
    await auto.delete()
    assert await auto.load() is None
    (tmp_path / "auth.json").mkdir()
    with pytest.raises(AccountError, match="Is a directory"):
        await AuthStore(tmp_path, "file").load()


class ForgetfulKeyring(FakeKeyring):
    """A keyring that forgets what it is told to."""

    def delete_password(self, service: str, name: str) -> None:
        del self.kept[service, name]


def test_settings_are_read_and_wrong_ones_named() -> None:
    def read(**document: Any) -> AccountSettings:
        return read_account_settings(Config(document))

    assert read() == AccountSettings()
    assert read(
        cli_auth_credentials_store="ephemeral",
        forced_login_method="api",
        forced_chatgpt_workspace_id=" one ",
    ) == AccountSettings("ephemeral", "api", ("one",))
    assert read(forced_chatgpt_workspace_id=["a", "b"]).workspaces == ("a", "b")
    assert read(forced_chatgpt_workspace_id="  ").workspaces == ()
    for key in ("cli_auth_credentials_store", "forced_login_method"):
        with pytest.raises(ConfigError, match="unknown variant `x`"):
            read(**{key: "x"})
