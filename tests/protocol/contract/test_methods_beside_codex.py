"""Each method, called well and badly: answers are of the class that Codex gives, or say why."""

import pytest

from tests.interop.methods.__main__ import is_same, recorded
from tests.interop.methods.cases import methods
from tests.interop.methods.differences import reason_of
from tests.interop.methods.play import answers
from tests.interop.tools.__main__ import OURS


@pytest.mark.slow
async def test_the_class_of_every_answer_is_that_of_codex_or_has_a_reason() -> None:
    theirs, ours = recorded(), await answers(OURS, methods())
    assert sorted(ours) == sorted(theirs)
    differing = {case for case, answer in theirs.items() if not is_same(answer, ours[case])}
    assert differing == {case for case in theirs if reason_of(case) is not None}
