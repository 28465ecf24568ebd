"""accounts: the account in memory, without a store and an issuer."""

import logging
from typing import Any

import pytest

from app_server.accounts.accounts import EARLY_MS, MAX_AGE_MS, CurrentAccount
from app_server.accounts.credentials import AuthState, Credentials
from app_server.accounts.issuer import Issuer
from app_server.accounts.store import AuthRecord, Tokens
from tests.support.accounts.account import NOW_MS
from tests.support.accounts.issuer_peer import make_id_token, make_jwt


def record(access: str, account: str = "acct-1") -> AuthRecord:
    tokens = Tokens(make_id_token(account), access, "refresh")
    return AuthRecord.of_tokens(tokens, Issuer("http://127.0.0.1:1", "client-1"), NOW_MS)


@pytest.mark.parametrize(
    ("claims", "at_ms", "is_due"),
    [
        ({"exp": NOW_MS // 1000}, NOW_MS - EARLY_MS - 1, False),
        ({"exp": NOW_MS // 1000}, NOW_MS - EARLY_MS, True),
        ({}, NOW_MS + MAX_AGE_MS - 1, False),
        ({}, NOW_MS + MAX_AGE_MS, True),
    ],
)
def test_a_token_is_renewed_before_it_expires_or_when_it_is_old(
    claims: dict[str, Any], at_ms: int, is_due: bool
) -> None:
    current = CurrentAccount()
    current.use_stored(record(make_jwt(**claims)))
    assert current.should_be_renewed(at_ms) is is_due


def test_what_cannot_be_renewed_here_is_not_tried() -> None:
    current = CurrentAccount()
    much_later_ms = NOW_MS + 2 * MAX_AGE_MS

    async def supply(account_id: str | None) -> Credentials:
        raise AssertionError("nobody asked")

    assert not current.should_be_renewed(much_later_ms)
    current.use_stored(AuthRecord.of_api_key("sk-1"))
    assert not current.should_be_renewed(much_later_ms)
    current.use_supplied(Credentials("chatgptAuthTokens", make_jwt(exp=1)), supply)
    assert not current.should_be_renewed(much_later_ms)
    assert current.supplier is supply
    current.use_stored(record(make_jwt()))
    assert current.supplier is None
    assert current.should_be_renewed(much_later_ms)
    current.refusal = "no more"
    assert not current.should_be_renewed(much_later_ms)
    # The same token again says nothing new of the refusal; another one does.
    current.use_stored(record(make_jwt()))
    assert current.refusal == "no more"
    current.use_stored(record(make_jwt(n=2)), is_renewal=True)
    assert current.refusal is None


def test_only_a_renewal_of_the_same_account_is_the_same_sign_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    current = CurrentAccount()
    seen: list[tuple[int, int]] = []

    def broken(state: AuthState) -> None:
        raise RuntimeError("its own fault")

    current.subscribe(broken)
    stop = current.subscribe(lambda state: seen.append((state.revision, state.sign_in)))
    with caplog.at_level(logging.CRITICAL):
        current.use_stored(record(make_jwt(n=1)))
        current.use_stored(record(make_jwt(n=2)), is_renewal=True)
        current.use_stored(record(make_jwt(n=2)))
        current.use_stored(record(make_jwt(n=3)))
        current.use_stored(record(make_jwt(n=4), "acct-2"), is_renewal=True)
        current.use_stored(None, is_renewal=True)
    assert seen == [(1, 1), (2, 1), (3, 2), (4, 3), (5, 4)]
    stop()
    current.use_stored(record(make_jwt(n=1)))
    assert len(seen) == 5
