"""How a check ends that does not pass: a sentence for the author of the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class Fault(Exception):
    """What the driver did, in a sentence, and what the contract says about it."""

    def __init__(self, happened: str, contract: str) -> None:
        super().__init__(f"{happened}\nThe contract: {contract}")
        self.happened = happened
        self.contract = contract


class NotTried(Exception):
    """The check does not apply: nothing is claimed, or the stage cannot play it."""


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Open the groups that nurseries make; the drivers and stages have some."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:  # pyright: ignore[reportUnknownVariableType, reportUnknownMemberType] - a group of anything
            yield from leaves(inner)  # pyright: ignore[reportUnknownArgumentType] - as above
    else:
        yield error
