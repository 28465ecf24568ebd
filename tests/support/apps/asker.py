"""A client of a local server that answers its questions."""

from protocol.model import JsonObject

FORM: JsonObject = {"elicitation": {"form": {}}}
URL: JsonObject = {"elicitation": {"url": {}}}


class Asker:
    """A client's user: answers, and keeps what was asked."""

    def __init__(self, *answers: JsonObject) -> None:
        self.asked: list[tuple[str, JsonObject]] = []
        self._answers = list(answers)

    async def __call__(self, method: str, params: JsonObject) -> JsonObject:
        self.asked.append((method, params))
        return self._answers.pop(0)
