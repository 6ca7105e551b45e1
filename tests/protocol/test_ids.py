"""Names, fence tokens, inbox keys and errors: small things that much rests on."""

from __future__ import annotations

import re

import pytest

from agentteam_protocol.errors import (
    AgentTeamError,
    RemoteProtocolError,
    RuntimeExited,
    RuntimeFailure,
    RuntimeMissing,
    RuntimeRefused,
)
from agentteam_protocol.ids import Generation, ItemId, mint
from agentteam_protocol.inbox import Item, Lane


def test_a_fresh_id_bears_its_prefix_and_no_two_are_alike() -> None:
    made = {mint("msg") for _ in range(1000)}
    assert len(made) == 1000
    assert all(re.fullmatch(r"msg_[0-9a-f]{16}", name) for name in made)


def test_the_next_generation_is_newer_and_a_newer_epoch_newer_still() -> None:
    first = Generation(1, 4)
    assert first < first.next() < Generation(2, 0)
    assert str(first.next()) == "1.5"


def test_lanes_are_served_in_the_order_in_which_they_stand() -> None:
    assert list(Lane) == [Lane.urgent, Lane.next_step, Lane.next_turn]


def test_each_attempt_has_a_key_of_its_own() -> None:
    first = Item(ItemId("itm_1"), "body", Lane.next_step)
    second = Item(ItemId("itm_1"), "body", Lane.next_step, attempt=2)
    assert (first.key, second.key) == ("itm_1.1", "itm_1.2")


def test_what_a_driver_may_raise_is_one_family() -> None:
    missing = RuntimeMissing("there is no codex", "install it")
    assert str(missing) == "there is no codex; install it"
    exited = RuntimeExited(-9, "last words")
    assert (exited.returncode, exited.stderr_tail) == (-9, "last words")
    refused = RuntimeRefused("no", "-32600")
    assert (refused.message, refused.code) == ("no", "-32600")
    for error in (missing, exited, refused):
        assert isinstance(error, RuntimeFailure)
        assert isinstance(error, AgentTeamError)


def test_the_offending_frame_is_kept_short() -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        raise RemoteProtocolError("bad", "x" * 10_000)
    assert len(caught.value.frame) == 500
