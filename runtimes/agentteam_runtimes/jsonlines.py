"""One JSON object per line, in both directions; what is not one becomes `Noise`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NoReturn, cast

import orjson
from attrs import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

SAMPLE_BYTES = 400
BOM = b"\xef\xbb\xbf"
# The nesting that the fast codec still reads is far deeper than so many bytes allow.
SURELY_FLAT = 1000

JsonObject = dict[str, Any]


@frozen
class Noise:
    """
    A line that is no message of the protocol: a banner, a warning, half an object.

    It is counted and a sample of it is shown in diagnostics. Nothing ever searches
    inside it for JSON.
    """

    reason: str
    sample: str
    size: int


def decode_line(line: bytes) -> JsonObject | Noise:
    """
    Read one line as a JSON object.

    The fast codec refuses lone surrogates and deep nesting; the standard library reads
    those, and what defeats both is quarantined instead of ending the reader.
    """
    if line.startswith(b"{"):
        # As nearly all lines are: what begins so and can be read is an object.
        try:
            return cast("JsonObject", orjson.loads(line))
        except orjson.JSONDecodeError:
            pass
    text = line.removeprefix(BOM).strip()
    if not text:
        return noise("an empty line", line)
    if text[:1] != b"{" or text[-1:] != b"}":
        return noise("no JSON object", line)
    try:
        value: object = orjson.loads(text)
    except orjson.JSONDecodeError as exc:
        if not _defeats_the_fast_codec(text):
            return noise(f"not JSON: {type(exc).__name__}", line)
        try:
            value = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as worse:
            return noise(f"not JSON: {type(worse).__name__}", line)
    return cast("JsonObject", value)


def may_be_object(line: bytes) -> bool:
    """Tell whether a line is worth decoding: cheap, and never wrong about an object."""
    return line[:1] == b"{" or line.removeprefix(BOM).lstrip()[:1] == b"{"


def _defeats_the_fast_codec(text: bytes) -> bool:
    """Tell whether it may be JSON all the same: a surrogate, or deep nesting."""
    return len(text) > SURELY_FLAT or b"\\u" in text or not text.isascii()


def encode_line(message: Mapping[str, object]) -> bytes:
    """Write one JSON object as a line, with its newline."""
    try:
        return orjson.dumps(message, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # lone surrogates, integers beyond 64 bits
        return json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n"


def well_formed(text: str) -> str:
    """
    Replace lone surrogates by U+FFFD.

    They are no Unicode text: a peer written in Rust drops the whole line without an
    answer, so they must not reach one inside a message that waits for its answer.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    return text


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def noise(reason: str, line: bytes) -> Noise:
    """Quarantine a line: why, and how it begins."""
    sample = line[:SAMPLE_BYTES].decode("utf-8", "replace").strip()
    return Noise(reason, sample, len(line))
