"""rpc: connections that are open, and what is done when they end."""

from app_server.rpc.connection import ConnectionLoad
from app_server.rpc.context import InitializedClient
from app_server.rpc.hub import Connections, Hub
from app_server.rpc.outbox import Delta


class Connected:
    """A peer that has 7 characters to send."""

    initialized: InitializedClient | None = None
    is_behind = False
    is_of_node = False
    load = ConnectionLoad(in_flight=0, messages=1, chars=7)

    def post(self, *texts: str, delta: Delta | None = None) -> None:
        raise AssertionError("nothing is sent here")

    async def wait_for_room(self) -> None:
        raise AssertionError("nobody waits here")

    def give_up(self) -> None:
        raise AssertionError("nobody has missed anything")


def test_what_waits_for_the_end_of_a_connection_is_run_once() -> None:
    connections = Connections()
    done: list[int] = []
    with connections.opened(Connected()) as one, connections.opened(Connected()) as other:
        for _ in range(2):
            connections.when_gone(one, done.append)
            connections.when_gone(other, done.append)
        connections.when_gone(one, lambda gone: done.append(-gone))
        assert done == []
    assert done == [other, one, -one]
    connections.when_gone(one, done.append)
    assert done == [other, one, -one, one]


def test_a_connection_that_ends_may_stay_open_and_be_given_more_to_do() -> None:
    connections = Connections()
    done: list[int] = []
    peer = Connected()
    with connections.opened(peer) as one:
        connections.when_gone(one, done.append)
        connections.end(one)
        assert done == [one]
        assert connections.peers == {one: peer}
        assert connections.waiting_chars(one) == 7
        connections.when_gone(one, done.append)
        assert done == [one]
    assert done == [one, one]
    assert connections.peers == {}
    assert connections.waiting_chars(one) == 0


def test_a_client_of_the_hub_that_leaves_ends_what_belongs_to_it() -> None:
    hub = Hub()
    done: list[int] = []
    with hub.connect(Connected()) as one:
        hub.subscribe(one, "t")
        hub.connections.when_gone(one, done.append)
        hub.connections.end(one)
        assert (done, hub.is_subscribed(one, "t")) == ([one], True)
        hub.connections.when_gone(one, lambda gone: done.append(hub.subscribers.count))
    assert done == [one, 0]
