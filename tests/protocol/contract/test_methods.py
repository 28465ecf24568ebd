"""protocol.contract: the table of all messages."""

from protocol.contract.methods import METHODS, NOTIFICATIONS
from protocol.contract.specs import build_types, type_adapter
from protocol.model import WireModel


def test_notifications_and_methods_do_not_share_names() -> None:
    assert METHODS.keys().isdisjoint(NOTIFICATIONS)


def test_build_types_builds_the_types_of_members_too() -> None:
    class Inner(WireModel):
        """A member's type."""

        text: str

    class Outer(WireModel):
        """A type of a message."""

        inner: list[Inner | None]

    build_types(Outer)
    assert Inner.__pydantic_complete__
    assert Outer.__pydantic_complete__
    assert type_adapter(Outer).pydantic_complete


def test_build_leaves_no_validator_to_the_first_request() -> None:
    for spec in METHODS.values():
        spec.build()
        assert type_adapter(spec.params).pydantic_complete, spec.params_name
        assert type_adapter(spec.result).pydantic_complete, spec.result_name
