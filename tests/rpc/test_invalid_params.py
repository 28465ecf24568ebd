"""rpc: params that do not fit are refused by the name of a field and its rule."""

import pytest
from pydantic import ValidationError

from app_server.rpc.dispatch import first_problem
from protocol.turns.requests import TurnStartParams
from tests.support.harness import claim


@claim("errors:invalid-params")
def test_the_first_problem_names_field_and_rule() -> None:
    granular = {"granular": {"rules": 1}}
    policies = "'untrusted', 'on-request' or 'never'"
    for params, field, rule in (
        ({}, "threadId", "missing field `threadId`"),
        ({"threadId": 5, "input": []}, "threadId", "Input should be a valid string"),
        ({"threadId": "t", "input": [{"type": "image"}]}, "input.0", "needs one of url, fileId"),
        (
            {"threadId": "t", "input": [{"type": "text"}]},
            "input.0.text",
            "missing field `input.0.text`",
        ),
        (
            {"threadId": "t", "input": [], "approvalPolicy": "x"},
            "approvalPolicy",
            f"Input should be {policies}",
        ),
        (
            {"threadId": "t", "input": [], "approvalPolicy": granular},
            "approvalPolicy",
            f"Input should be {policies}",
        ),
    ):
        with pytest.raises(ValidationError) as caught:
            TurnStartParams.model_validate(params)
        problem = first_problem(caught.value, params)
        assert (problem.code, problem.message) == (-32602, f"Invalid params: `{field}`: {rule}")
        assert problem.data == {"code": "invalidParams", "field": field, "rule": rule}
