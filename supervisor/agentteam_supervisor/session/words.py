"""The words that an agent reads instead of a send or a history. The only copy."""

from __future__ import annotations

# interrupt spec §6.2: a clear word before the old run and the new request can race.
HELD = (
    "Held: the current run was interrupted by a new message. "
    "Do not send; the new message is your next input."
)
REJECTED = (
    "Rejected: this run was interrupted and is over. Stop sending; "
    "nothing of it is published any more."
)
# The server never answered: the link broke, or took too long.
UNKNOWN = (
    "Outcome unknown: the server's answer did not come. Call read_history for the "
    "target first; do not send it again before."
)
NO_LINK = "Not sent: there is no connection to the server now. Try again later."
NO_SERVER = "Not sent: there is no server to send through."

UNREAD = "The history could not be read in time. Try again."
UNREAD_NO_LINK = (
    "The history was not read: there is no connection to the server now."
    " Try again later."
)
UNREAD_LINK_LOST = "The history was not read: the link to the server was lost."
UNREAD_NO_SERVER = "The history was not read: there is no server to read from."
NO_TARGET = "There is no such target."
NOTHING_NEW = "There are no messages after this."
