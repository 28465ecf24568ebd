"""Signing in with a code that the user enters in a browser on any machine.

Importing this module imports httpx; nobody does before somebody signs in.
"""

import math
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import anyio

from app_server.accounts.errors import AccountError, DeviceCodeNotOffered, LoginFailed
from app_server.accounts.grants import exchange_code
from app_server.accounts.issuer import Issuer
from app_server.accounts.login.attempt import Keep
from app_server.accounts.record import Tokens
from app_server.accounts.web import Web, open_issuer_web
from protocol.jsonrpc.errors import internal_error, invalid_request
from protocol.server.account import ChatgptDeviceCodeLoginAccountResponse, LoginAccountResponse

MAX_WAIT_S = 15 * 60.0
"""How long the user may take."""

DEFAULT_INTERVAL_S = 5.0
MIN_INTERVAL_S = 1.0
MAX_INTERVAL_S = 60.0
"""Bounds of the pause between questions, whatever the issuer wants."""

PENDING = (403, 404)
"""Statuses that say: not yet."""


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """A code, good for one sign-in."""

    user_code: str
    device_auth_id: str = field(repr=False)
    interval_s: float


async def request_device_code(web: Web, issuer: Issuer) -> DeviceCode:
    """Ask for a code.

    Raises:
        DeviceCodeNotOffered: the issuer has none.
        LoginFailed: it gives none.
        AccountError: see `Web.ask`.
    """
    answer = await web.ask(f"{issuer.device_api}/usercode", {"client_id": issuer.client_id})
    if answer.status == 404:
        raise DeviceCodeNotOffered(
            "device code login is not enabled for this Codex server."
            " Use the browser login or verify the server URL."
        )
    if not answer.ok:
        raise LoginFailed(f"device code request failed with status {answer.shown_status}")
    body = answer.parse()
    user_code = body.get("user_code", body.get("usercode"))
    device_auth_id = body.get("device_auth_id")
    if not isinstance(user_code, str) or not isinstance(device_auth_id, str):
        raise LoginFailed("the answer with the device code makes no sense")
    return DeviceCode(user_code, device_auth_id, _interval_s(body.get("interval")))


async def await_tokens(
    web: Web,
    issuer: Issuer,
    code: DeviceCode,
    sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
) -> Tokens:
    """Wait until the user has entered the code, and fetch the tokens.

    Raises:
        LoginFailed: the issuer refuses, or the user took longer than MAX_WAIT_S.
        AccountError: see `Web.ask`.
    """
    question = {"device_auth_id": code.device_auth_id, "user_code": code.user_code}
    url = f"{issuer.device_api}/token"
    try:
        with anyio.fail_after(MAX_WAIT_S):
            while True:
                answer = await web.ask(url, question)
                if answer.status not in PENDING:
                    break
                await sleep(code.interval_s)
    except TimeoutError:
        raise LoginFailed("device auth timed out after 15 minutes") from None
    if not answer.ok:
        raise LoginFailed(f"device auth failed with status {answer.shown_status}")
    body = answer.parse()
    grant, verifier = body.get("authorization_code"), body.get("code_verifier")
    if not isinstance(grant, str) or not isinstance(verifier, str):
        raise LoginFailed("the answer to the device code makes no sense")
    try:
        return await exchange_code(web, issuer, grant, issuer.device_redirect_url, verifier)
    except LoginFailed as exc:
        raise LoginFailed(f"device code exchange failed: {exc}") from exc


def _interval_s(value: Any) -> float:
    try:
        wanted = float(value)
    except (TypeError, ValueError):
        wanted = DEFAULT_INTERVAL_S
    if math.isnan(wanted):
        wanted = DEFAULT_INTERVAL_S
    return min(max(wanted, MIN_INTERVAL_S), MAX_INTERVAL_S)


@dataclass(slots=True)
class DeviceLogin:
    """A Flow with a browser on any machine."""

    issuer: Issuer
    web: Web
    code: DeviceCode
    stack: AsyncExitStack
    """Closes the connections."""
    prefix: str = ""

    @classmethod
    async def open(cls) -> "DeviceLogin":
        """Ask for a code.

        Raises:
            RpcError: there is none.
        """
        issuer = Issuer.for_sign_in()
        async with AsyncExitStack() as stack:
            web = await stack.enter_async_context(open_issuer_web())
            try:
                code = await request_device_code(web, issuer)
            except DeviceCodeNotOffered as exc:
                raise invalid_request(str(exc), "loginNotOffered") from exc
            except AccountError as exc:
                raise internal_error(
                    f"failed to request device code: {exc}", "loginFailed"
                ) from exc
            return cls(issuer, web, code, stack.pop_all())

    def response(self, login_id: str) -> LoginAccountResponse:
        """Name the address and the code."""
        return ChatgptDeviceCodeLoginAccountResponse(
            login_id=login_id,
            verification_url=self.issuer.device_url,
            user_code=self.code.user_code,
        )

    async def run(self, keep: Keep) -> None:
        """Wait until the code was entered and sign in."""
        await keep(await await_tokens(self.web, self.issuer, self.code), self.issuer)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.stack.aclose()
