from __future__ import annotations

import os
import signal
import sys
import tracemalloc
from typing import TYPE_CHECKING

import pytest
import trio
from tests.kit.trees import (
    ALL_KINDS,
    ENVIRONMENT,
    FOR_EVER,
    KINDS,
    PREAMBLE,
    Ears,
    eventually,
    gone,
    left,
    living,
)

from agentteam_protocol.errors import QueueFull, RuntimeExited, RuntimeMissing
from agentteam_runtimes import orphans, process_table, warden_start
from agentteam_runtimes.incarnation import Limits
from agentteam_runtimes.lines import MEBIBYTE

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

ECHO = "import sys\nfor line in sys.stdin: print(line, end='', flush=True)\n"


@pytest.fixture(params=["cgroup", "subreaper"])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the cgroup away half of the time: the walk must do without it."""
    if request.param == "subreaper":
        monkeypatch.setattr(warden_start, "make_cgroup", str)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# The whole of B01: nothing of an incarnation survives it


@pytest.mark.bug("B01")
@pytest.mark.usefixtures("level")
async def test_leaving_ends_every_kind_of_descendant() -> None:
    ears = Ears()
    with trio.fail_after(20):
        async with ears.open(ALL_KINDS + FOR_EVER) as incarnation:
            processes = await ears.ready()
            assert sorted(processes) == sorted(KINDS)
            runtime = incarnation.identity.runtime
        assert left(processes) == []
        assert gone(runtime)
        assert gone(incarnation.identity.warden)
    (end,) = ears.exits
    assert (end.returncode, end.why, end.survivors) == (-9, "told", ())


@pytest.mark.bug("B01")
@pytest.mark.usefixtures("level")
@pytest.mark.parametrize(
    ("end", "returncode"),
    [("sys.exit(0)", 0), ("os.kill(os.getpid(), 9)", -9), ("sys.exit(7)", 7)],
)
async def test_a_runtime_that_ends_by_itself_leaves_nothing(
    end: str, returncode: int
) -> None:
    ears = Ears()
    with trio.fail_after(20):
        async with ears.open(ALL_KINDS + f"sys.stdin.readline(); {end}") as incarnation:
            processes = await ears.ready()
            await incarnation.write(b"go\n")
            ended = await incarnation.wait()
            assert left(processes) == []
    assert (ended.returncode, ended.survivors) == (returncode, ())
    assert ended.by_itself
    assert ears.exits == [ended]


@pytest.mark.bug("B01")
@pytest.mark.usefixtures("level")
async def test_term_ends_the_leader_and_kill_the_deaf_grandchild() -> None:
    ears = Ears()
    with trio.fail_after(20):
        async with ears.open(PREAMBLE + "deaf_to_term(); say('ready')" + FOR_EVER) as i:
            processes = await ears.ready()
            await i.terminate()
            ended = await i.wait()
            assert ended.returncode == -signal.SIGTERM
            assert left(processes) == []


@pytest.mark.bug("B01")
@pytest.mark.usefixtures("level")
async def test_kill_says_that_nothing_survived() -> None:
    ears = Ears()
    with trio.fail_after(20):
        async with ears.open(ALL_KINDS + FOR_EVER) as incarnation:
            processes = await ears.ready()
            assert await incarnation.kill() == ()
            assert left(processes) == []
            assert (await incarnation.wait()).returncode == -9


@pytest.mark.bug("B01")
@pytest.mark.usefixtures("level")
@pytest.mark.parametrize("delay", [0, 0.001, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1])
async def test_cancel_during_the_start_leaks_nothing(delay: float) -> None:
    before = open_descriptors()
    children = set(process_table.read_children(os.getpid()) or ())
    ears = Ears()
    with trio.fail_after(20):
        with trio.move_on_after(delay):
            async with ears.open(ALL_KINDS + FOR_EVER):
                await trio.sleep_forever()
    assert set(process_table.read_children(os.getpid()) or ()) <= children
    assert open_descriptors() == before


async def test_cancelled_owner_still_hears_the_exit() -> None:
    ears = Ears()
    with trio.fail_after(20):
        with trio.CancelScope() as scope:
            async with ears.open(ALL_KINDS + FOR_EVER):
                await ears.ready()
                scope.cancel()
                await trio.sleep_forever()
    (end,) = ears.exits
    assert (end.returncode, end.why, end.survivors) == (-9, "told", ())


@pytest.mark.bug("B01")
@pytest.mark.usefixtures("level")
async def test_error_of_the_owner_comes_out_bare_and_the_tree_is_gone() -> None:
    ears = Ears()
    with trio.fail_after(20):
        with pytest.raises(LookupError, match="mine"):  # noqa: PT012 - raised inside
            async with ears.open(ALL_KINDS + FOR_EVER):
                processes = await ears.ready()
                raise LookupError("mine")
        assert left(processes) == []


@pytest.mark.bug("B01")
@pytest.mark.usefixtures("level")
async def test_a_stopped_runtime_is_killed() -> None:
    ears = Ears()
    stops = ALL_KINDS + "os.kill(os.getpid(), signal.SIGSTOP)" + FOR_EVER
    with trio.fail_after(20):
        async with ears.open(stops) as incarnation:
            processes = await ears.ready()
        assert left(processes) == []
        assert gone(incarnation.identity.runtime)


@pytest.mark.bug("B01")
@pytest.mark.usefixtures("level")
async def test_a_forking_tree_cannot_run_away_from_the_kill() -> None:
    ears = Ears()
    forks = PREAMBLE + (
        "say('ready')\n"
        "while True:\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        time.sleep(0.002)\n"
        "    else:\n"
        "        time.sleep(0.004)\n"
        "        if os.fork(): os._exit(0)\n"
    )
    with trio.fail_after(30):
        async with ears.open(["sh", "-c", 'python3 -c "$0" & sleep 600', forks]) as one:
            await ears.ready()
            assert await one.kill() == ()
            assert (await one.wait()).survivors == ()


# The sweep after a graceful interrupt


@pytest.mark.bug("B01")
@pytest.mark.usefixtures("level")
async def test_sweep_ends_what_the_turn_started_and_spares_what_was_there() -> None:
    ears = Ears()
    turn = PREAMBLE + (
        "own_session(); say('ready'); sys.stdin.readline()\n"
        "same_group(); deaf_to_term(); double_forked(); say('turn')" + FOR_EVER
    )
    with trio.fail_after(20):
        async with ears.open(turn) as incarnation:
            old = await ears.ready()
            await trio.sleep(0.02)  # a start is known to the tick of 10 ms
            mark = incarnation.mark()
            await incarnation.write(b"go\n")
            await eventually(lambda: b"turn" in ears.lines)
            processes = ears.named()
            swept = await incarnation.sweep(mark, grace=0.1)
            assert swept.survivors == ()
            assert {one.pid for one in swept.ended} == {
                processes["deaf"].pid,
                processes["double-forked"].pid,
            }
            assert living(processes) == [*old, "same-group"]
            assert ears.exits == []


@pytest.mark.usefixtures("level")
async def test_runtime_is_alone_until_something_lives_beside_it() -> None:
    ears = Ears()
    forks = PREAMBLE + (
        "say('ready'); sys.stdin.readline(); double_forked(); say('forked')" + FOR_EVER
    )
    with trio.fail_after(20):
        async with ears.open(forks) as incarnation:
            await ears.ready()
            assert incarnation.alone
            await incarnation.write(b"go\n")
            await eventually(lambda: b"forked" in ears.lines)
            assert not incarnation.alone  # an orphan, which is no child of the runtime


@pytest.mark.bug("B01")
@pytest.mark.usefixtures("level")
async def test_sweep_spares_what_is_named_and_all_below_it() -> None:
    ears = Ears()
    with trio.fail_after(20):
        async with ears.open(ALL_KINDS + FOR_EVER) as incarnation:
            processes = await ears.ready()
            swept = await incarnation.sweep(0, [processes["deaf"]], grace=0.1)
            assert swept.survivors == ()
            assert sorted(living(processes)) == ["deaf", "same-group"]


# Streams


@pytest.mark.bug("B05")
@pytest.mark.parametrize("size", [65_537, 1_048_577, 15 * MEBIBYTE])
async def test_long_lines_come_whole(size: int) -> None:
    ears = Ears()
    script = f"import os\nprint('x' * {size}); print('end')"
    with trio.fail_after(20):
        async with ears.open(script) as incarnation:
            assert (await incarnation.wait()).returncode == 0
    assert [len(line) for line in ears.lines] == [size, 3]


@pytest.mark.bug("B05")
async def test_line_that_never_ends_is_reported_and_memory_stays_near_the_limit() -> (
    None
):
    ears = Ears()
    endless = (
        "import os, sys\n"
        "for _ in range(1024): os.write(1, b'z' * 65536)\n"
        "os.write(1, b'\\nfine\\n'); sys.stdin.read()"
    )
    tracemalloc.start()
    try:
        with trio.fail_after(60):
            async with ears.open(endless, limits=Limits(line=4 * MEBIBYTE)):
                await eventually(lambda: ears.lines == [b"fine"], within=50)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    (overlong,) = ears.overlong
    assert overlong.length_so_far <= 4 * MEBIBYTE + 65536
    assert overlong.head == b"z" * 256
    assert peak < 8 * MEBIBYTE


@pytest.mark.bug("B15")
async def test_half_line_of_a_dying_runtime_is_kept() -> None:
    ears = Ears()
    script = "import os\nos.write(1, b'{}\\n{\"half'); os._exit(1)"
    with trio.fail_after(20):
        async with ears.open(script) as incarnation:
            ended = await incarnation.wait()
    assert (ears.lines, ended.half_line, ended.returncode) == ([b"{}"], b'{"half', 1)


@pytest.mark.bug("B09")
async def test_stderr_before_the_first_line_does_not_stop_the_runtime() -> None:
    ears = Ears()
    script = (
        "import os\nos.write(2, b'e' * 300000); os.write(2, b'last'); print('ready')"
    )
    with trio.fail_after(20):
        async with ears.open(script) as incarnation:
            ended = await incarnation.wait()
    assert ears.lines == [b"ready"]
    assert ended.stderr_tail.endswith("last")
    assert incarnation.stderr_bytes == 300_004


@pytest.mark.bug("B09")
async def test_fifty_mebibytes_of_stderr_leave_a_bounded_tail() -> None:
    ears = Ears()
    script = "import os\nfor _ in range(800): os.write(2, b'e' * 65536)\nprint('done')"
    tracemalloc.start()
    try:
        with trio.fail_after(30):
            async with ears.open(script) as incarnation:
                ended = await incarnation.wait()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert incarnation.stderr_bytes == 800 * 65536
    assert len(ended.stderr_tail) == 64 * 1024
    assert peak < 2 * MEBIBYTE


@pytest.mark.bug("B09")
async def test_survivor_that_holds_stdout_delays_the_exit_by_a_bound_only() -> None:
    ears = Ears()
    reading, writing = os.pipe()
    try:
        os.set_inheritable(writing, True)
        with trio.fail_after(20):
            async with ears.open(
                # Somebody outside the tree gets hold of the pipe.
                "import os, sys\nprint('ready', os.getpid(), flush=True)\n"
                "sys.stdin.readline()",
                limits=Limits(drain=0.1),
            ) as incarnation:
                await eventually(lambda: bool(ears.lines))
                held = os.open(f"/proc/{incarnation.pid}/fd/1", os.O_WRONLY)
                try:
                    await incarnation.write(b"go\n")
                    assert (await incarnation.wait()).returncode == 0
                finally:
                    os.close(held)
    finally:
        os.close(reading)
        os.close(writing)


async def test_runtime_that_closed_its_stdout_is_ended() -> None:
    ears = Ears()
    script = "import os, time\nprint('ready', flush=True); os.close(1); time.sleep(600)"
    with trio.fail_after(20):
        async with ears.open(script, limits=Limits(mute=0.05)) as incarnation:
            ended = await incarnation.wait()
    assert (ended.why, ended.returncode) == ("mute", -9)


@pytest.mark.bug("B08")
async def test_write_to_a_runtime_that_stops_reading_fails_with_its_exit() -> None:
    deaf = (
        "import os, sys\nos.read(0, 10); os.close(0)\n"
        "sys.stderr.write('no more'); sys.stderr.flush(); os._exit(1)"
    )
    one, other = Ears(), Ears()
    with trio.fail_after(20):
        async with one.open(deaf) as dying, other.open(ECHO) as living:
            with pytest.raises(RuntimeExited) as failure:
                await dying.write(b"p" * 300_000)
            assert failure.value.returncode == 1
            assert failure.value.stderr_tail == "no more"
            await dying.wait()
            started = trio.current_time()
            for _ in range(3):
                with pytest.raises(RuntimeExited):
                    await dying.write(b"again\n")
            assert trio.current_time() - started < 0.1
            await living.write(b"still here\n")
            await eventually(lambda: other.lines == [b"still here"])


@pytest.mark.bug("B08")
async def test_write_to_a_runtime_that_closed_its_stdin_but_lives_is_refused() -> None:
    ears = Ears()
    script = "import os, time\nos.close(0); print('ready', flush=True); time.sleep(600)"
    with trio.fail_after(20):
        async with ears.open(script, limits=Limits(last_words=0.05)) as incarnation:
            await ears.ready()
            with pytest.raises(RuntimeExited) as failure:
                await incarnation.write(b"hello\n")
            assert failure.value.returncode is None
            assert ears.exits == []


@pytest.mark.bug("B08")
async def test_death_between_two_writes_is_told_with_the_signal() -> None:
    ears = Ears()
    with trio.fail_after(20):
        async with ears.open(ECHO) as incarnation:
            await incarnation.write(b"one\n")
            await eventually(lambda: ears.lines == [b"one"])
            os.kill(incarnation.pid, signal.SIGKILL)
            await incarnation.wait()
            with pytest.raises(RuntimeExited) as failure:
                await incarnation.write(b"two\n")
            assert failure.value.returncode == -9


async def test_cancelled_writer_never_leaves_half_a_line() -> None:
    ears = Ears()
    script = ECHO.replace("import sys\n", "import sys\nsys.stdin.readline()\n" * 1)
    slow = "import sys, time\ntime.sleep(0.3)\n" + script
    with trio.fail_after(20):
        async with ears.open(slow) as incarnation:
            await incarnation.write(b"skipped\n")
            with trio.move_on_after(0.05) as cut:
                await incarnation.write(b"a" * 200_000 + b"\n")
            assert cut.cancelled_caught
            with trio.move_on_after(0.05) as withdrawn:
                await incarnation.write(b"never begun\n")
            assert withdrawn.cancelled_caught
            await incarnation.write(b"next\n")
            incarnation.close_stdin()
            await incarnation.wait()
    assert ears.lines == [b"a" * 200_000, b"next"]


async def test_too_much_waiting_input_is_refused_and_nothing_of_it_written() -> None:
    ears = Ears()
    script = (
        "import sys, time\nsys.stdin.readline(); print(sys.stdin.readline(), end='')"
    )
    with trio.fail_after(20):
        async with ears.open(script, limits=Limits(queue=1000)) as incarnation:
            with pytest.raises(QueueFull):
                await incarnation.write(b"x" * 1001)
            await incarnation.write(b"first\n")
            await incarnation.write(b"second\n")
            assert (await incarnation.wait()).returncode == 0
    assert ears.lines == [b"second"]


# Starting


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        (["no-such-program-here"], "there is no program no-such-program-here"),
        (["/no/such/program"], "there is no program /no/such/program"),
        (["/etc/passwd"], "/etc/passwd may not be executed"),
        (["{here}/script"], "names an interpreter that is not there"),
        (["{here}/noise"], "is not a program this machine can run"),
    ],
)
async def test_program_that_cannot_start_is_told_with_what_to_do(
    program: list[str], problem: str, tmp_path: Path
) -> None:
    for name, content in (
        ("script", b"#!/no/such/shell\n"),
        ("noise", b"\x01\x02\x03"),
    ):
        (tmp_path / name).write_bytes(content)
        (tmp_path / name).chmod(0o755)
    command = [word.format(here=tmp_path) for word in program]
    before = open_descriptors()
    ears = Ears()
    with trio.fail_after(20):
        with pytest.raises(RuntimeMissing) as failure:
            async with ears.open(command):
                pass
    assert problem in failure.value.problem
    assert failure.value.what_to_do
    assert ears.exits == []
    assert open_descriptors() == before


async def test_bad_working_directory_is_told_with_what_to_do(tmp_path: Path) -> None:
    ears = Ears()
    with trio.fail_after(20):
        with pytest.raises(
            RuntimeMissing, match=r"working directory .* cannot be used"
        ):
            async with ears.open(["true"], cwd=tmp_path / "absent"):
                pass


async def test_runtime_gets_its_directory_and_environment_and_nothing_else(
    tmp_path: Path,
) -> None:
    ears = Ears()
    script = (
        "import os, signal\nprint(os.getcwd()); print(sorted(os.environ))\n"
        "print(os.getsid(0) == os.getpid()); print(os.listdir('/proc/self/fd'))\n"
    )
    env = {**ENVIRONMENT, "MARK": "here"}
    with trio.fail_after(20):
        async with ears.open(
            [sys.executable, "-I", "-S", "-c", f"exec({script!r})"],
            cwd=tmp_path,
            env=env,
        ) as incarnation:
            await incarnation.wait()
    cwd, names, leads, descriptors = ears.lines
    assert cwd.decode() == str(tmp_path)
    assert "'MARK'" in names.decode()
    assert leads == b"True"
    assert descriptors == b"['0', '1', '2', '3']"  # 3 is the listing itself


async def test_runtime_starts_with_no_signal_ignored_or_blocked() -> None:
    ears = Ears()
    before = signal.signal(signal.SIGQUIT, signal.SIG_IGN)  # as `nohup` would
    try:
        with trio.fail_after(20):
            async with ears.open(["cat", "/proc/self/status"]) as incarnation:
                await incarnation.wait()
    finally:
        signal.signal(signal.SIGQUIT, before)
    masks = dict(line.decode().split(":\t") for line in ears.lines if b"Sig" in line)
    assert int(masks["SigIgn"], 16) == int(masks["SigBlk"], 16) == 0


# Many


@pytest.mark.bug("B34")
async def test_exit_codes_are_exact_and_no_zombie_or_descriptor_stays() -> None:
    orphans.ensure_subreaper()
    before = open_descriptors()
    children = set(process_table.read_children(os.getpid()) or ())
    helpers = PREAMBLE + (
        "for _ in range(200):\n"
        "    if os.fork() == 0:\n"
        "        if os.fork() == 0: os.setsid()\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
        "say('ready'); sys.stdin.read()"
    )
    ears = Ears()
    codes: dict[int, int | None] = {}
    two_at_once = trio.CapacityLimiter(4)

    async def start_and_stop(code: int) -> None:
        async with two_at_once, Ears().open(["sh", "-c", f"exit {code}"]) as one:
            codes[code] = (await one.wait()).returncode

    with trio.fail_after(60):
        async with ears.open(helpers) as incarnation, trio.open_nursery() as nursery:
            nursery.start_soon(orphans.reap_orphans, 0.05)
            async with trio.open_nursery() as starts:
                for code in range(50):
                    starts.start_soon(start_and_stop, code)
            await ears.ready()
            guard = incarnation.identity.warden.pid
            await eventually(
                lambda: process_table.read_children(guard) == [incarnation.pid],
                within=2,
            )
            nursery.cancel_scope.cancel()
    assert codes == {code: code for code in range(50)}
    assert set(process_table.read_children(os.getpid()) or ()) <= children
    assert open_descriptors() == before


@pytest.mark.bug("B34")
async def test_two_hundred_failed_starts_leave_no_descriptor() -> None:
    before = open_descriptors()
    four_at_once = trio.CapacityLimiter(4)

    async def fail() -> None:
        async with four_at_once:
            with pytest.raises(RuntimeMissing):
                async with Ears().open(["no-such-program-here"]):
                    pass

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for _ in range(200):
                nursery.start_soon(fail)
    assert open_descriptors() == before
