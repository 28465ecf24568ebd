"""Questions to the hosted backend about an account's use, asked as the account.

Source: docs/accounts.md, "Usage".
"""

import logging

import anyio

from app_server.accounts.accounts import Accounts
from app_server.accounts.credentials import Credentials
from app_server.accounts.errors import AccountError, BackendRefused, RefreshFailed
from app_server.accounts.usage_answers import (
    ProfileAnswer,
    ResetCreditsAnswer,
    ThreadsAnswer,
    ThreadUse,
    UsageAnswer,
    read_answer,
)
from app_server.accounts.web import Web, WebAnswer, open_hosted_web
from protocol.model import JsonObject

logger = logging.getLogger(__name__)

UNAUTHORIZED = 401
UNKNOWN_THREAD = (403, 404)
"""Statuses for a thread whose use the account may not, or cannot, read."""

RESERVE_HEADER = "x-openai-codex-luna-reserve"


def usage_url(base_url: str) -> str:
    """Say where the questions go; ChatGPT's own backend has them in another place."""
    return f"{base_url}/wham" if "/backend-api" in base_url else f"{base_url}/api/codex"


class AccountUsage:
    """The account's use, asked for anew each time."""

    def __init__(self, accounts: Accounts, base_url: str) -> None:
        """Ask below `base_url`, which has no slash at its end."""
        self._accounts = accounts
        self._url = usage_url(base_url)

    async def limits(
        self, who: Credentials, *, with_credits: bool, takes_reserve: bool
    ) -> tuple[UsageAnswer, ResetCreditsAnswer | None]:
        """Ask where the account stands with its limits, and for the credits that reset them.

        Credits that cannot be had are None: the limits count without them.

        Raises:
            AccountError: there is no answer, or not one that makes sense.
        """
        headers = {RESERVE_HEADER: "1"} if takes_reserve else {}
        async with open_hosted_web() as web:
            found: list[ResetCreditsAnswer] = []

            async def ask_credits() -> None:
                try:
                    answer = await self._ask(web, who, "rate-limit-reset-credits")
                    found.append(read_answer(answer, ResetCreditsAnswer))
                except AccountError as exc:
                    logger.info("the credits that reset limits were not read: %s", exc)

            async with anyio.create_task_group() as tasks:
                if with_credits:
                    tasks.start_soon(ask_credits)
                usage: WebAnswer | AccountError
                try:
                    usage = await self._ask(web, who, "usage", more=headers)
                except AccountError as exc:
                    # Raised here, it would come out in a group.
                    usage = exc
            if isinstance(usage, AccountError):
                raise usage
        return read_answer(usage, UsageAnswer), found[0] if found else None

    async def profile(self, who: Credentials) -> ProfileAnswer:
        """Ask how many tokens the account has used.

        Raises:
            AccountError: see `limits`.
        """
        async with open_hosted_web() as web:
            return read_answer(await self._ask(web, who, "profiles/me"), ProfileAnswer)

    async def thread(self, who: Credentials, thread_id: str) -> ThreadUse | None:
        """Ask what a thread has used; None where the account cannot know.

        Raises:
            AccountError: see `limits`.
        """
        async with open_hosted_web() as web:
            body: JsonObject = {"thread_ids": [thread_id]}
            answer = await self._ask(web, who, "usage/thread_usage/query", body)
        if answer.status in UNKNOWN_THREAD:
            return None
        threads = read_answer(answer, ThreadsAnswer).threads
        if [thread.thread_id for thread in threads] != [thread_id]:
            text = "the hosted backend's answer is about other threads"
            raise BackendRefused(text, answer.status)
        return threads[0]

    async def _ask(
        self,
        web: Web,
        who: Credentials,
        path: str,
        body: JsonObject | None = None,
        more: dict[str, str] | None = None,
    ) -> WebAnswer:
        """Ask once, and once more with another token if the one was refused."""
        url = f"{self._url}/{path}"
        answer = await web.ask(url, body, {**who.headers(), **(more or {})})
        if answer.status != UNAUTHORIZED:
            return answer
        try:
            renewed = (await self._accounts.replace(who)).credentials
        except RefreshFailed:
            raise
        except AccountError as exc:
            logger.info("a token that the hosted backend refused was not renewed: %s", exc)
            return answer
        if renewed is None or not renewed.is_same_account(who):
            return answer
        return await web.ask(url, body, {**renewed.headers(), **(more or {})})
