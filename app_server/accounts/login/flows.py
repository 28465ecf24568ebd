"""Ways to sign in to ChatGPT that wait for the user.

Importing this module imports httpx; nobody does before somebody signs in.
"""

from contextlib import AsyncExitStack

from app_server.accounts.errors import AccountError, DeviceCodeNotOffered, LoginFailed
from app_server.accounts.grants import exchange_code
from app_server.accounts.issuer import Issuer
from app_server.accounts.login.attempt import Keep
from app_server.accounts.login.browser import BrowserLogin, BrowserWishes
from app_server.accounts.login.device_code import DeviceCode, await_tokens, request_device_code
from app_server.accounts.web import IssuerWeb, open_issuer_web
from protocol.account import (
    ChatgptDeviceCodeLoginAccountResponse,
    ChatgptLoginAccountResponse,
    LoginAccountResponse,
)
from protocol.errors import internal_error, invalid_request


class BrowserFlow:
    """With a browser on this machine."""

    prefix = "Login server error: "

    def __init__(self, issuer: Issuer, login: BrowserLogin) -> None:
        self._issuer = issuer
        self._login = login

    @classmethod
    async def open(cls, wishes: BrowserWishes) -> "BrowserFlow":
        """Listen for the browser.

        Raises:
            RpcError: no port is free.
        """
        issuer = Issuer.for_sign_in()
        try:
            return cls(issuer, await BrowserLogin.open(issuer, wishes))
        except LoginFailed as exc:
            raise internal_error(f"failed to start login server: {exc}", "loginFailed") from exc

    def response(self, login_id: str) -> LoginAccountResponse:
        """Name the address for the browser."""
        return ChatgptLoginAccountResponse(login_id=login_id, auth_url=self._login.url)

    async def run(self, keep: Keep) -> None:
        """Wait for the browser and sign in."""

        async def receive(code: str, redirect_uri: str, verifier: str) -> None:
            try:
                async with open_issuer_web() as web:
                    tokens = await exchange_code(web, self._issuer, code, redirect_uri, verifier)
            except AccountError as exc:
                raise LoginFailed(f"Token exchange failed: {exc}") from exc
            await keep(tokens, self._issuer)

        await self._login.run(receive)

    async def aclose(self) -> None:
        """Give the port back."""
        await self._login.aclose()


class DeviceFlow:
    """With a browser on any machine."""

    prefix = ""

    def __init__(
        self, issuer: Issuer, web: IssuerWeb, code: DeviceCode, stack: AsyncExitStack
    ) -> None:
        self._issuer = issuer
        self._web = web
        self._code = code
        self._stack = stack

    @classmethod
    async def open(cls) -> "DeviceFlow":
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
            verification_url=self._issuer.device_url,
            user_code=self._code.user_code,
        )

    async def run(self, keep: Keep) -> None:
        """Wait until the code was entered and sign in."""
        await keep(await await_tokens(self._web, self._issuer, self._code), self._issuer)

    async def aclose(self) -> None:
        """Close the connections."""
        await self._stack.aclose()
