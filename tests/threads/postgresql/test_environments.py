"""Environments that clients of one server added, for threads of another one."""

from pathlib import Path

import pytest

from app_server.config.store_url import StoreUrl
from app_server.threads.environments import AddedEnvironment
from app_server.threads.postgresql.database import Database
from app_server.threads.postgresql.environments import MAX_KEPT, PostgresEnvironments
from tests.support.harness import serve
from tests.support.host.elsewhere import add, entry
from tests.support.host.exec_conversations import listening

pytestmark = pytest.mark.postgresql


async def test_a_server_finds_the_environments_that_another_one_was_given(
    tmp_path: Path, database_url: str
) -> None:
    store = StoreUrl.parse(database_url)
    folder = tmp_path / "far"
    folder.mkdir()
    async with (
        listening() as url,
        serve(tmp_path / "one", store=store) as one,
        serve(tmp_path / "two", store=store) as two,
        one.client() as here,
        two.client() as there,
    ):
        refused = await there.refusal("thread/start", {"environments": [entry(folder)]})
        assert refused.data["code"] == "unknownEnvironment"
        await add(here, url)
        started = await there.call("thread/start", {"environments": [entry(folder)]})
        assert [one["environmentId"] for one in started["thread"]["environments"]] == ["there"]
        info = await there.call("environment/info", {"environmentId": "there"})
        assert info["cwd"].startswith("file://")


async def test_a_token_is_kept_by_the_server_that_was_given_it_alone(
    tmp_path: Path, database_url: str
) -> None:
    store = StoreUrl.parse(database_url)
    async with listening() as url, serve(tmp_path, store=store) as served, served.client() as one:
        for number, given in enumerate(
            [{"authBearerToken": "secret"}, {"execServerUrl": f"{url}/?key=secret"}]
        ):
            params = {"environmentId": f"e{number}", "execServerUrl": url, **given}
            await one.call("environment/add", params)
        await one.call("environment/add", {"environmentId": "open", "execServerUrl": url})
        database = Database(database_url)
        database.open()
        try:
            assert await PostgresEnvironments(database).all() == [AddedEnvironment("open", url)]
        finally:
            database.close()


async def test_as_many_as_a_server_takes_are_kept_the_newest_first(database_url: str) -> None:
    database = Database(database_url)
    database.open()
    try:
        kept = PostgresEnvironments(database)
        for number in range(MAX_KEPT + 3):
            await kept.put(AddedEnvironment(f"e{number}", "ws://127.0.0.1:1"))
        await kept.put(AddedEnvironment("e3", "ws://127.0.0.1:2", "id", 500))
        found = await kept.all()
        assert found[0] == AddedEnvironment("e3", "ws://127.0.0.1:2", "id", 500)
        newest = [f"e{number}" for number in range(MAX_KEPT + 2, 3, -1)]
        assert [one.id for one in found[1:]] == newest
    finally:
        database.close()
