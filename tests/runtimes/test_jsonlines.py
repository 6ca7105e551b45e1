"""A line is an object or noise; both codecs agree on what we write."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from agentteam_runtimes.jsonlines import (
    SAMPLE_BYTES,
    Noise,
    decode_line,
    encode_line,
    well_formed,
)

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
    max_leaves=8,
)


@pytest.mark.bug("B15")
@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"   ",
        b"Update available {hello}",
        b"42",
        b'"x"',
        b"[]",
        b"null",
        b'{"a":1',
        b'{"a":NaN}',
        b'{"a":1}{"b":2}',
        b"\xff\xfe{}",
        b"[" * 5000,
        b'{"a":' + b"9" * 5000 + b"}x",
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_line_that_is_no_object_is_noise(line: bytes) -> None:
    noise = decode_line(line)
    assert isinstance(noise, Noise)
    assert noise.size == len(line)
    assert len(noise.sample) <= SAMPLE_BYTES


@pytest.mark.bug("B15")
@pytest.mark.parametrize(
    "line", [b'{"a":1}', b'\xef\xbb\xbf{"a":1}\r', b'  {"a":2,"a":1}\r\n']
)
def test_object_is_read_whatever_surrounds_it(line: bytes) -> None:
    assert decode_line(line) == {"a": 1}


def test_line_that_defeats_the_fast_codec_is_read_by_the_other() -> None:
    assert decode_line(rb'{"a":"\ud800"}') == {"a": "\ud800"}


@given(st.dictionaries(st.text(st.characters()), VALUES))
def test_whatever_we_write_is_one_line_and_reads_back(value: dict[str, object]) -> None:
    line = encode_line(value)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == value


@given(st.text(st.characters()))
def test_well_formed_text_is_unicode_and_otherwise_the_same(text: str) -> None:
    fixed = well_formed(text)
    fixed.encode()
    assert len(fixed) == len(text)
    assert all(a == b or b == "\ufffd" for a, b in zip(text, fixed, strict=True))
