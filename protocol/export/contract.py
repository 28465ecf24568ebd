"""What one variant of the contract holds, and in which folder each type lives."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from protocol.contract.methods import METHODS, NOTIFICATIONS, SERVER_REQUESTS
from protocol.contract.specs import MethodSpec
from protocol.export.definitions import (
    FRAMES,
    Definitions,
    load_definitions,
    reachable,
    stable_part,
)
from protocol.export.messages import message_definitions, with_operations

FRAME_TYPES = (
    "RequestId",
    "JSONRPCMessage",
    "JSONRPCRequest",
    "JSONRPCNotification",
    "JSONRPCResponse",
    "JSONRPCError",
    "JSONRPCErrorError",
    "ErrorData",
)
TOP_AREAS = frozenset(
    {FRAMES, "host.search", "older_interface.approvals", "older_interface.queries"}
)
"""Areas whose types the reference keeps out of `v2/`."""


@dataclass(frozen=True, slots=True)
class Contract:
    """Every type of one variant, and those that are messages or parts of frames themselves."""

    definitions: Definitions
    v1: frozenset[str]
    v2: frozenset[str]
    top: frozenset[str]
    received: frozenset[str]
    """Types that clients write; in all others the server writes every member."""

    @property
    def roots(self) -> frozenset[str]:
        """The types that get a JSON Schema file of their own."""
        return self.v1 | self.v2 | self.top


def load_contract(*, experimental: bool) -> Contract:
    """Collect the stable contract, or with `experimental` the whole one."""
    unions = message_definitions()
    definitions: Definitions = {**load_definitions(), **unions}
    definitions = with_operations(definitions) if experimental else stable_part(definitions)
    requests = {
        name: spec for name, spec in METHODS.items() if experimental or not spec.experimental
    }
    questions = [s for s in SERVER_REQUESTS.values() if experimental or not s.experimental]
    news = [s for s in NOTIFICATIONS.values() if experimental or not s.experimental]
    v1 = frozenset(_types(requests[name] for name in ("initialize",)))
    top = {
        *FRAME_TYPES,
        *unions,
        *_types(questions),
        *_types(spec for spec in requests.values() if spec.area in TOP_AREAS),
        *(spec.params_name for spec in news if spec.area in TOP_AREAS),
    }
    v2 = {*_types(requests.values()), *(spec.params_name for spec in news)} - v1 - top
    used = reachable(definitions, v1 | v2 | top)
    received = reachable(
        definitions,
        [
            *(spec.params_name for spec in requests.values() if spec.params_name is not None),
            *(spec.result_name for spec in questions),
        ],
    )
    return Contract(
        {name: definitions[name] for name in sorted(used)},
        v1,
        frozenset(v2),
        frozenset(top),
        frozenset(received),
    )


def _types(specs: Iterable[MethodSpec]) -> Iterator[str]:
    for spec in specs:
        if spec.params_name is not None:
            yield spec.params_name
        yield spec.result_name
