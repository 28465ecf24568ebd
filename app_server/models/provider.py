"""One provider of models, as requests to it need it; where providers are declared is elsewhere.

Source: docs/config.md, "Models".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

WireApi: TypeAlias = Literal["responses", "chat"]
"""The Responses API, or Chat Completions."""

WIRE_APIS: Sequence[WireApi] = ("responses", "chat")


@dataclass(frozen=True, slots=True)
class Provider:
    """Provider of models: its address, API, credentials and retries."""

    id: str
    name: str
    base_url: str | None
    """None for the offline model, whose address is known when it runs."""
    wire_api: WireApi = "responses"
    """Which API it speaks."""
    env_key: str | None = None
    """Environment variable that holds the bearer token."""
    bearer_token: str | None = field(default=None, repr=False)
    http_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    env_http_headers: Mapping[str, str] = field(default_factory=dict)
    query_params: Mapping[str, str] = field(default_factory=dict, repr=False)
    request_max_retries: int = 4
    """Tries after the first for a request that got no stream."""
    stream_max_retries: int = 5
    """Tries after the first for a stream that broke; each is announced."""
    stream_idle_timeout_s: float = 300.0
    requires_openai_auth: bool = False
    """Requests are made as the account that is signed in."""
    chatgpt_url: str | None = None
    """Base URL for requests of ChatGPT accounts; None: `base_url`."""
    spare_env_key: str | None = None
    """Environment variable with the bearer token for use without a sign-in."""
