"""Exceptions within the groups that task groups put around them.

Source: https://docs.python.org/3/library/exceptions.html#exception-groups
"""


def only_member(error: BaseException) -> BaseException:
    """Take a lone exception out of the groups that task groups put around it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
