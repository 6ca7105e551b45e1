"""The server's words turned into what an agent can read and act on. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentteam_supervisor.session import words
from agentteam_supervisor.session.events import HistoryRead, SendAnswered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentteam_protocol.delivery import MessageRef
    from agentteam_protocol.frames import HistoryGiven, SendJudged
    from agentteam_protocol.ids import SendId, TargetId
    from agentteam_supervisor.session.effects import ReadTarget


def verdict(judged: SendJudged) -> SendAnswered:
    """Say in words what became of a visible send, and what the words show."""
    match judged.verdict:
        case "forwarded":
            text = f"Sent as message {judged.seq}."
        case "held":
            text = _held(judged)
        case _:
            text = f"Not sent: {judged.reason}."
    return SendAnswered(
        send=judged.send,
        verdict=judged.verdict,
        seq=judged.seq,
        text=text,
        shown=_shown(judged.unseen),
        target=judged.target,
    )


def refused(send: SendId) -> SendAnswered:
    """No link: nothing has left, and nothing will."""
    return SendAnswered(send, "rejected", text=words.NO_LINK)


def unknown(send: SendId) -> SendAnswered:
    return SendAnswered(send, "unknown")


def history(read: ReadTarget, given: HistoryGiven) -> HistoryRead:
    """Make the text of `read_history` and name exactly the sequences in it."""
    if given.problem or given.target is None:
        return unread(read, given.problem or words.NO_TARGET)
    text = lines(given.messages) or words.NOTHING_NEW
    seqs = tuple(message.target_seq for message in given.messages)
    return HistoryRead(read.call, read.gen, given.target, seqs, text)


def unread(read: ReadTarget, problem: str) -> HistoryRead:
    return HistoryRead(read.call, read.gen, None, (), problem, error=True)


def lines(messages: Sequence[MessageRef]) -> str:
    """Write messages one below the other, each with its number and author."""
    return "\n".join(
        f"[{_name(m)} {m.target_seq} from {m.author.name}] {m.body}" for m in messages
    )


def _name(message: MessageRef) -> str:
    name = message.target_name or message.target
    return name if name.startswith(("@", "#")) else f"#{name}"


def _held(judged: SendJudged) -> str:
    text = f"Held, not sent: {judged.reason}."
    if judged.unseen:
        text += "\nYou have not seen:\n" + lines(judged.unseen)
    return text


def _shown(messages: Sequence[MessageRef]) -> dict[TargetId, tuple[int, ...]]:
    shown: dict[TargetId, tuple[int, ...]] = {}
    for message in messages:
        before = shown.get(message.target, ())
        shown[message.target] = (*before, message.target_seq)
    return shown
