"""Why a connection is not one of our own user's."""


class UserUnknown(Exception):
    """It cannot be said who is at the other end; the text says why."""


class OtherUser(Exception):
    """The other end belongs to another user, `uid`."""

    def __init__(self, uid: int) -> None:
        super().__init__(f"the other end belongs to user {uid}")
        self.uid = uid
