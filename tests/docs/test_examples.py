"""docs: the examples of the protocol's reference are calls that this server answers so."""

from collections.abc import Mapping
from typing import Any

import pytest

from protocol.contract.methods import METHODS
from tests.docs.examples import calls, recorded


def outline(call: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what stays the same over runs: members of a result, code and word of an error."""
    if "error" in call:
        return call["error"]["code"], call["error"]["data"]["code"]
    result = call["result"]
    return tuple(sorted(result)) if isinstance(result, dict) else (type(result),)


@pytest.mark.slow
async def test_each_example_is_answered_so() -> None:
    found, examples = await calls(), recorded()
    assert {method: outline(call) for method, call in found.items()} == {
        method: outline(call) for method, call in examples.items()
    }
    assert {method: [*call["params"]] for method, call in found.items()} == {
        method: [*call["params"]] for method, call in examples.items()
    }


def test_each_method_has_an_example_whose_params_fit() -> None:
    assert sorted(recorded()) == sorted(METHODS)
    for method, call in recorded().items():
        METHODS[method].parse_params(call["params"])
