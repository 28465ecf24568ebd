"""The one place that imports httpx late: it costs 70 ms that a start should not wait for."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from app_server.accounts.accounts import Accounts
from app_server.models.interface import EventBatches, ModelFailure, Provider
from app_server.runtime.loader import Lazy, LoadFailed, load
from protocol.model import JsonObject

if TYPE_CHECKING:
    import ssl

    from app_server.models.client import ModelClient


class LazyModel:
    """A Model that makes its HTTP client when it is first asked."""

    def __init__(self, offline_url: Lazy[str], accounts: Accounts) -> None:
        """See app_server.models.client.ModelClient."""
        self._offline_url = offline_url
        self._accounts = accounts
        self._client = Lazy("the client of models", self._make)

    async def prepare(self) -> None:
        """Import and make the client now.

        Raises:
            LoadFailed: it cannot be imported now.
        """
        await self._client.get()

    @asynccontextmanager
    async def stream(self, provider: Provider, body: JsonObject) -> AsyncIterator[EventBatches]:
        """Make one call; see Model."""
        try:
            client = self._client.value or await self._client.get()
        except LoadFailed as exc:
            raise ModelFailure(f"the model cannot be asked: {exc}", retry_after_s=0.0) from exc
        async with client.stream(provider, body) as batches:
            yield batches

    async def list_models(self, provider: Provider) -> bytes:
        """Ask a provider for its models; see ModelClient."""
        try:
            client = self._client.value or await self._client.get()
        except LoadFailed as exc:
            raise ModelFailure(f"providers cannot be asked: {exc}") from exc
        return await client.list_models(provider)

    async def aclose(self) -> None:
        """Close the client, if there is one."""
        client = await self._client.close()
        if client is not None:
            await client.aclose()

    async def _make(self) -> "ModelClient":
        make, trusted_certificates = await load(_client)
        return make(self._offline_url, self._accounts, trusted=await trusted_certificates())


def _client() -> "tuple[type[ModelClient], Callable[[], Awaitable[ssl.SSLContext]]]":
    from app_server.models.client import ModelClient
    from app_server.runtime.http.trusted import trusted_certificates

    return ModelClient, trusted_certificates
