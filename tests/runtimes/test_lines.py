from __future__ import annotations

import itertools
import tracemalloc

import pytest
from hypothesis import given, strategies as st

from agentteam_runtimes.lines import MEBIBYTE, LineFramer


def feed_all(
    framer: LineFramer, chunks: list[bytes]
) -> tuple[list[bytes], list[bytes]]:
    lines: list[bytes] = []
    heads: list[bytes] = []
    for chunk in chunks:
        lines += framer.feed(chunk)
        heads += [overlong.head for overlong in framer.take_overlong()]
    return lines, heads


PIECES = st.lists(
    st.sampled_from(
        [b"a", b"bc", b"\n", b"\r", b"\r\n", b"\xef\xbb\xbf", b"\xef", b"0" * 9, b"{}"]
    ),
    max_size=40,
)


@given(pieces=PIECES, cuts=st.lists(st.integers(0, 200), max_size=12))
def test_any_chunking_gives_the_same_lines(
    pieces: list[bytes], cuts: list[int]
) -> None:
    stream = b"".join(pieces)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    chunks = [stream[a:b] for a, b in itertools.pairwise(edges)]
    whole, cut_up = LineFramer(limit=8), LineFramer(limit=8)
    assert feed_all(whole, [stream]) == feed_all(cut_up, chunks)
    assert whole.finish() == cut_up.finish()


@given(pieces=PIECES)
def test_lines_are_those_of_a_plain_split(pieces: list[bytes]) -> None:
    stream = b"".join(pieces)
    *complete, _ = stream.split(b"\n")
    expected = [
        line.removesuffix(b"\r").removeprefix(b"\xef\xbb\xbf")
        for line in complete
        if len(line) <= 8
    ]
    assert feed_all(LineFramer(limit=8), [stream])[0] == expected


@pytest.mark.bug("B15")
def test_carriage_returns_and_byte_order_marks_are_stripped() -> None:
    framer = LineFramer()
    assert framer.feed(b"\xef\xbb\xbfone\r\n\r\ntw") == [b"one", b""]
    assert framer.feed(b"o\r") == []
    assert framer.feed(b"\n\xef\xbb\xbf{}\n") == [b"two", b"{}"]


@pytest.mark.bug("B15")
def test_half_line_at_the_end_is_kept() -> None:
    framer = LineFramer()
    assert framer.feed(b'{"a":1}\n{"b"') == [b'{"a":1}']
    assert framer.finish() == b'{"b"'
    assert framer.finish() is None


@pytest.mark.bug("B05")
@pytest.mark.parametrize("size", [65_537, 1_048_577, 15 * MEBIBYTE, 16 * MEBIBYTE])
def test_long_lines_within_the_limit_are_whole(size: int) -> None:
    framer = LineFramer()
    line = b"x" * size
    stream = line + b"\nnext\n"
    chunks = [stream[i : i + 65536] for i in range(0, len(stream), 65536)]
    assert feed_all(framer, chunks) == ([line, b"next"], [])


@pytest.mark.bug("B05")
def test_line_over_the_limit_is_reported_once_and_the_next_is_good() -> None:
    framer = LineFramer(limit=100)
    assert framer.feed(b"good\n" + b"y" * 60) == [b"good"]
    assert framer.feed(b"y" * 60) == []
    (overlong,) = framer.take_overlong()
    assert (overlong.length_so_far, overlong.head) == (120, b"y" * 100)
    assert framer.feed(b"y" * 500) == []
    assert framer.feed(b"tail\nfine\n") == [b"fine"]
    assert framer.take_overlong() == []


@pytest.mark.bug("B05")
def test_memory_stays_near_the_limit_on_a_line_that_never_ends() -> None:
    framer = LineFramer(limit=4 * MEBIBYTE)
    chunk = b"z" * 65536
    tracemalloc.start()
    try:
        for _ in range(64 * MEBIBYTE // len(chunk)):
            assert framer.feed(chunk) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(framer.take_overlong()) == 1
    assert framer.pending == 0
    assert peak < 6 * MEBIBYTE


@pytest.mark.bug("B05")
def test_a_line_in_tiny_chunks_costs_no_more_memory_than_its_bytes() -> None:
    framer = LineFramer(limit=4 * MEBIBYTE)
    tracemalloc.start()
    try:
        for _ in range(MEBIBYTE):
            framer.feed(b"ab")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert framer.feed(b"\n") == [b"ab" * MEBIBYTE]
    assert peak < 3 * MEBIBYTE
