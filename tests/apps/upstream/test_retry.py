"""When what failed is tried again, and that one account's bad luck is not another's."""

from pathlib import Path

import pytest
from starlette.responses import Response

from app_server.apps.account import AppsUnavailable
from app_server.extensions.contract.registration import ContributionContext
from tests.support.apps.hosted import connector, serve_hosted
from tests.support.apps.service import BOTH, LIST, open_apps, runs
from tests.support.harness import claim


@claim("apps:t-40")
async def test_an_endpoint_that_fails_holds_up_no_other(tmp_path: Path) -> None:
    async with (
        serve_hosted([connector(*runs("look"), id_="mail")]) as other,
        open_apps(tmp_path) as apps,
    ):
        # A token is of one endpoint: the other one takes the same, for this test.
        other.endpoint.token = apps.hosted.endpoint.token
        other.script.answers["initialize"] = [Response(status_code=500) for _ in range(20)]
        broken = {"chatgpt_base_url": other.endpoint.base_url}

        def contributed() -> list[str]:
            context = ContributionContext("discover", broken, "other thread")
            return [one.name for one in apps.service.contribute(context)]

        with pytest.raises(AppsUnavailable):
            await apps.service.snapshot(broken)
        await apps.clock.until_waiting()
        asked = len(other.script.arrivals)
        await apps.service.prepare_mcp_servers(apps.config)
        assert apps.contribute() == BOTH
        # It waits still, and the other's success did not end that.
        assert contributed() == []
        assert apps.clock.waits == [1.0]
        assert len(other.script.arrivals) == asked
        other.script.answers.clear()
        revision = apps.service.revision()
        apps.clock.pass_by()
        await apps.published(revision)
        assert contributed() == []
        await apps.published(revision + 1)
        assert contributed() == ["codex_apps", "codex_apps__mail"]
        assert apps.contribute() == BOTH
        assert (apps.fetches(), other.script.names().count(LIST)) == (1, 1)
