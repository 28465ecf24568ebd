"""accounts: an issuer that does not answer."""

import anyio
import pytest

from app_server.accounts import accounts
from app_server.accounts.account_errors import IssuerUnavailable
from app_server.accounts.accounts import IssuerAccess
from app_server.accounts.credentials import RefreshReason
from app_server.accounts.store import AuthRecord
from app_server.runtime.loader import LoadFailed
from protocol.model import JsonObject

RECORD = AuthRecord({"auth_mode": "chatgpt", "tokens": {"access_token": "t"}})


class Silent:
    """An issuer that never answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def renew(self, record: AuthRecord, reason: RefreshReason) -> JsonObject:
        self.asked.append(reason)
        await anyio.sleep_forever()
        raise AssertionError

    async def revoke(self, record: AuthRecord) -> None:
        self.asked.append("revoke")
        await anyio.sleep_forever()


async def test_an_issuer_that_does_not_answer_is_not_waited_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    silent = Silent()
    access = IssuerAccess(silent, answer_s=0.01, revoke_s=0.01)
    with pytest.raises(TimeoutError):
        await access.renew(RECORD, "forced")
    await access.revoke(RECORD)
    assert silent.asked == ["forced", "revoke"]
    assert caplog.messages == ["tokens were not given back: "]


async def test_what_no_issuer_gave_is_not_given_back() -> None:
    silent = Silent()
    access = IssuerAccess(silent)
    await access.revoke(AuthRecord.of_api_key("sk-1"))
    await access.revoke(AuthRecord({"auth_mode": "chatgpt"}))
    assert silent.asked == []


async def test_an_issuer_that_cannot_be_loaded_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[object] = []

    async def fail(imports: object) -> object:
        tries.append(imports)
        raise LoadFailed("no httpx")

    monkeypatch.setattr(accounts, "load", fail)
    access = IssuerAccess()
    for _ in range(2):
        with pytest.raises(IssuerUnavailable, match="the issuer cannot be asked: no httpx"):
            await access.renew(RECORD, "proactive")
    assert len(tries) == 2
