"""protocol.contract: the table of all messages."""

from protocol.contract.methods import METHODS, NOTIFICATIONS


def test_notifications_and_methods_do_not_share_names() -> None:
    assert METHODS.keys().isdisjoint(NOTIFICATIONS)
