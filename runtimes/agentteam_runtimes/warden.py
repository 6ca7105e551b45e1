"""
Own the whole process tree of one runtime, and end it.

A program: `main` takes CONTROL_FD LEASE_SECONDS CGROUP CWD PROGRAM [ARGUMENT...];
the runtime gets the warden's own standard streams and environment. See
`warden_start.py` for how it is called.

A runtime's tools run in sessions of their own and may double-fork with an empty
environment, so neither a group kill nor a search by mark reaches them all. The
kernel does: a child subreaper inherits every orphan below it, so once `waitpid`
says "no child" nothing of the incarnation is left anywhere.

Commands come as lines of words, `ID VERB ARGUMENT...`; what happens goes back as
one JSON object a line. `beat` has no id and no answer.

| line                                   | what it does                               |
|----------------------------------------|--------------------------------------------|
| `7 terminate`                          | SIGTERM to the group and the tree          |
| `7 kill SECONDS`                       | SIGKILL until the tree is empty            |
| `7 sweep TICKS GRACE SECONDS P:T...`   | end what was born since TICKS in another   |
|                                        | session than the runtime's, but for the    |
|                                        | processes named P:T and what is below them |
| `7 list`                               | the tree                                   |
| `beat`                                  | the supervisor lives                       |

| report                | when                                                    |
|-----------------------|---------------------------------------------------------|
| `started`, `failed`   | once, first                                             |
| `exited`              | the runtime's wait status, exact                        |
| `answer`              | to each command                                         |
| `ending`              | it took the order to kill                               |
| `over`                | the tree is empty, or its survivors by name             |

The tree is killed when told, when the runtime is gone, when the control socket
closes (its owner was killed), and when no word came for the lease (it hangs).
SIGTERM, SIGINT and SIGHUP are ignored: a stop of the service is the
supervisor's to order, and ends here as a closed control socket.

Start-up is the price of every incarnation, so this file imports nothing heavy:
`json`, `signal`, `typing` and `ctypes` cost more than the rest of it together.
"""

# ruff: noqa: SIM105 - contextlib is an import too heavy for this program
from __future__ import annotations

import os
import select
import sys
import time

from agentteam_runtimes.process_table import (
    LINUX,
    Process,
    below,
    read_process,
    read_table,
    read_tree,
    send_signal,
    strike,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
    from collections.abc import Callable, Iterable
    from typing import NoReturn
else:
    import _signal  # `signal` wraps each name in an enum, 5 ms of start-up

# The number is the same on every kind of machine that Linux has.
SYS_CLONE3 = 435
CLONE_INTO_CGROUP = 0x200000000
CLONE_ARGS_WORDS = 11
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
STUBBORN_PAUSE = 1.0


def call_libc(name: str, *arguments: int | bytes) -> int:
    """Call a C function that returns an integer; -1 where there is none."""
    try:
        # `ctypes` itself takes 4 ms to import, this core of it 0.1 ms.
        import _ctypes

        libc = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # as in C: this program
        function = _ctypes.dlsym(libc, name)
        return int(_ctypes.call_function(function, arguments))
    except (ImportError, AttributeError):
        import ctypes

        return int(getattr(ctypes.CDLL(None), name)(*arguments))
    except OSError:
        return -1


def become_subreaper() -> bool:
    """Have every orphan below this process become its child."""
    return LINUX and call_libc("prctl", PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


class StartFailed(Exception):
    """The runtime could not be started; says at which step, and the errno."""

    def __init__(self, stage: str, errno: int) -> None:
        super().__init__(stage, errno)
        self.stage = stage
        self.errno = errno


def fork_into(cgroup: str) -> int:
    """
    Fork, straight into a cgroup if there is one that takes us.

    Moving a process there once it runs would stall every fork of the machine for 5
    to 30 ms.
    """
    if not cgroup:
        return os.fork()
    words = [CLONE_INTO_CGROUP, 0, 0, 0, int(_signal.SIGCHLD), 0, 0, 0, 0, 0]
    fd = -1
    try:
        fd = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY)
        words.append(fd)
        assert len(words) == CLONE_ARGS_WORDS
        record = b"".join(word.to_bytes(8, sys.byteorder) for word in words)
        pid = call_libc("syscall", SYS_CLONE3, record, len(record))
    except OSError:
        pid = -1
    finally:
        if fd >= 0:
            os.close(fd)
    return pid if pid >= 0 else os.fork()


def start_runtime(cgroup: str, cwd: str, command: list[str]) -> int:
    """Start the runtime in a session of its own; return its pid."""
    reading, writing = os.pipe()  # close-on-exec: it closes when the start succeeds
    warden = os.getpid()
    pid = fork_into(cgroup)
    if pid == 0:
        become_runtime(warden, writing, cwd, command)
    os.close(writing)
    with open(reading, "rb") as problems:
        problem = problems.read()
    if problem:
        os.waitpid(pid, 0)
        stage, _, errno = problem.decode().partition(" ")
        raise StartFailed(stage, int(errno))
    return pid


# Python ignores the first two, `nohup` and a shell's background the others.
NOT_IGNORED = (
    _signal.SIGPIPE,
    _signal.SIGXFSZ,
    _signal.SIGHUP,
    _signal.SIGINT,
    _signal.SIGQUIT,
)


def become_runtime(
    warden: int, problems: int, cwd: str, command: list[str]
) -> NoReturn:
    """Turn this fresh child into the runtime; never returns."""
    stage = "session"
    try:
        os.setsid()
        if LINUX:
            # The warden may be killed too; its runtime must not outlive it.
            call_libc("prctl", PR_SET_PDEATHSIG, int(_signal.SIGKILL), 0, 0, 0)
            if os.getppid() != warden:
                os._exit(127)
        for number in NOT_IGNORED:
            _signal.signal(number, _signal.SIG_DFL)
        stage = "cwd"
        os.chdir(cwd)
        stage = "exec"
        os.execvp(command[0], command)
    except OSError as error:
        os.write(problems, f"{stage} {error.errno}".encode())
    finally:
        os._exit(127)


class Warden:
    """
    The loop around one runtime.

    Single-threaded. While it waits for processes to end it goes on reaping,
    counting the lease and reading commands; those wait their turn, but a kill or
    a closed control socket cuts a sweep short.
    """

    def __init__(
        self, control: int, lease: float, cgroup: str, runtime: Process
    ) -> None:
        self.control = control
        self.lease = lease
        self.cgroup = cgroup
        self.runtime = runtime
        self.status: int | None = None
        self.ending = ""
        self.childless = False
        self._commands: list[list[str]] = []
        self._partial = b""
        self._fence_at = time.monotonic() + lease
        self._wake, wake_writing = os.pipe()
        for fd in (control, self._wake, wake_writing):
            os.set_blocking(fd, False)
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._poll.register(self._wake, select.POLLIN)
        _signal.signal(_signal.SIGCHLD, notice)
        _signal.set_wakeup_fd(wake_writing, warn_on_full_buffer=False)
        for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
            _signal.signal(number, _signal.SIG_IGN)

    def run(self) -> None:
        self.report(f'"report":"started",{self.runtime.to_json()[1:-1]}')
        self.reap()
        while self.status is None and not self.ending:
            if self._commands:
                self.obey(self._commands.pop(0))
            else:
                self.pump(None)
        within = 2.0
        for command in self._commands:
            if command[1] == "kill":
                within = float(command[2])
        survivors = self.kill_tree(within)
        for command in self._commands:
            self.answer(command[0], [], survivors)
        self.report(f'"report":"over","why":"{self.ending}",{rows(survivors)}')
        while not self.childless:  # stay the jailer of what could not be killed
            self.kill_tree(STUBBORN_PAUSE)
        if self.cgroup:
            try:
                os.rmdir(self.cgroup)
            except OSError:
                pass  # the supervisor was faster

    def report(self, fields: str) -> None:
        try:
            os.write(self.control, f"{{{fields}}}\n".encode())
        except OSError:
            pass  # nobody listens (any more); what we do does not depend on it

    def answer(
        self, command: str, ended: Iterable[Process], survivors: Iterable[Process]
    ) -> None:
        gone = ",".join(p.to_json() for p in ended)
        self.report(
            f'"report":"answer","id":{command},"ended":[{gone}],{rows(survivors)}'
        )

    # What comes in

    def pump(self, until: float | None) -> None:
        """Take in signals and commands; returns at the next of them, or `until`."""
        asked = time.monotonic()
        wake_at = self._fence_at if until is None else min(until, self._fence_at)
        if self.ending and until is not None:
            wake_at = until
        pause = max(0.0, wake_at - asked)
        ready = dict(self._poll.poll(pause * 1000))
        if self._wake in ready:
            os.read(self._wake, 4096)
        if self.control in ready:
            self.listen()
        self.reap()
        now = time.monotonic()
        if now > asked + pause + self.lease / 2:
            # This process itself stood still (a paused machine): ask again first.
            self._fence_at = now + self.lease
        if now >= self._fence_at and not self.ending:
            self.ending = "lease"

    def listen(self) -> None:
        try:
            data = os.read(self.control, 65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._poll.unregister(self.control)
            self.ending = self.ending or "closed"
            return
        self._fence_at = time.monotonic() + self.lease
        *lines, self._partial = (self._partial + data).split(b"\n")
        commands = [line.decode().split() for line in lines]
        self._commands += [words for words in commands if len(words) > 1]
        if any(words[1] == "kill" for words in self._commands):
            self.report('"report":"ending"')
            self.ending = self.ending or "told"

    def reap(self) -> None:
        """Collect every child that ended, ours or adopted."""
        while not self.childless:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.childless = True
                return
            if pid == 0:
                return
            if pid == self.runtime.pid and self.status is None:
                self.status = status
                self.report(f'"report":"exited","status":{status}')

    # What is done

    def obey(self, command: list[str]) -> None:
        match command:
            case [name, "terminate"]:
                self.terminate()
                self.answer(name, [], [])
            case [name, "list"]:
                self.answer(name, [], self.tree())
            case [name, "sweep", born, grace, within, *keep]:
                spared = [tuple(map(int, pair.split(":"))) for pair in keep]
                ended, survivors = self.sweep(
                    int(born), float(grace), float(within), spared
                )
                self.answer(name, ended, survivors)
            case _:
                self.report(f'"report":"answer","id":{command[0]},"error":"unknown"')

    def tree(self) -> list[Process]:
        """
        List what lives below this warden.

        Without a subreaper orphans are not below it any more: there the runtime's
        group and session count too.
        """
        if LINUX:
            return [p for p in read_tree(os.getpid()) if p.alive]
        table = read_table()
        found = {p.key: p for p in below(os.getpid(), table)}
        home = self.runtime.pid
        found |= {p.key: p for p in table if home in (p.pgid, p.sid)}
        return [p for p in found.values() if p.alive]

    def terminate(self) -> None:
        """Ask the whole tree to end. Nothing is waited for."""
        if self.status is None:
            try:
                os.killpg(self.runtime.pid, _signal.SIGTERM)
            except (ProcessLookupError, PermissionError):
                pass
        for process in self.tree():
            if process.pgid != self.runtime.pid:
                send_signal(process, _signal.SIGTERM)
            send_signal(process, _signal.SIGCONT)  # a stopped one hears nothing

    def kill_tree(self, within: float) -> list[Process]:
        """Kill until nothing is left, or name what is left after `within`."""
        until = time.monotonic() + within
        pause = 0.0005
        while True:
            self.kill_cgroup()
            strike(self.tree)
            self.reap()
            if self.childless or time.monotonic() >= until:
                return self.tree()
            self.pump(min(until, time.monotonic() + pause))
            pause = min(pause * 2, 0.05)

    def kill_cgroup(self) -> None:
        """Kill all at once; the walk of the tree stays, for what was moved out."""
        if not self.cgroup:
            return
        try:
            with open(f"{self.cgroup}/cgroup.kill", "wb", buffering=0) as switch:
                switch.write(b"1")
        except OSError:
            pass

    def sweep(
        self, born: int, grace: float, within: float, keep: Iterable[tuple[int, ...]]
    ) -> tuple[list[Process], list[Process]]:
        """
        End what a cut turn left behind: TERM, a grace, then KILL.

        A start is known to the tick (10 ms), so what was born within the tick of
        the mark counts as born after it: nothing of the turn is spared.
        """
        spared = set(keep)
        seen: dict[tuple[int, int], Process] = {}

        def look() -> list[Process]:
            tree = self.tree()
            roots = [p.pid for p in tree if p.key in spared]
            kept = {*roots, *(p.pid for root in roots for p in below(root, tree))}
            found = [
                p
                for p in tree
                if p.ticks >= born and p.sid != self.runtime.sid and p.pid not in kept
            ]
            seen.update((p.key, p) for p in found)
            return found

        left = look()
        if not left:
            return [], []  # most often, and each look reads the whole tree
        for process in left:
            send_signal(process, _signal.SIGTERM)
            send_signal(process, _signal.SIGCONT)
        started = time.monotonic()
        self.wait_while(look, started + grace)
        until = started + grace + within
        while look() and not self.stop_waiting and time.monotonic() < until:
            strike(look)
            self.wait_while(look, min(until, time.monotonic() + 0.02))
        survivors = look()
        alive = {p.key for p in survivors}
        return [p for key, p in seen.items() if key not in alive], survivors

    @property
    def stop_waiting(self) -> bool:
        return bool(self.ending) or self.status is not None

    def wait_while(self, look: Callable[[], list[Process]], until: float) -> None:
        """Wait for processes to end; a kill or the runtime's exit cuts it short."""
        pause = 0.001
        while look() and not self.stop_waiting and time.monotonic() < until:
            self.pump(min(until, time.monotonic() + pause))
            pause = min(pause * 2, 0.02)


def rows(processes: Iterable[Process]) -> str:
    return f'"processes":[{",".join(p.to_json() for p in processes)}]'


def notice(*_: object) -> None:
    """Take a signal that only has to wake the poll."""


def main(arguments: list[str]) -> None:
    control, lease, cgroup, cwd, *command = arguments
    fd = int(control)
    os.set_inheritable(fd, False)
    become_subreaper()
    try:
        pid = start_runtime(cgroup, cwd, command)
    except StartFailed as problem:
        fields = f'"stage":"{problem.stage}","errno":{problem.errno}'
        os.write(fd, f'{{"report":"failed",{fields}}}\n'.encode())
        return
    # Else the runtime's end would not be the end of its streams.
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    runtime = read_process(pid) or Process(pid, os.getpid(), pid, pid, 0, "X", "gone")
    Warden(fd, float(lease), cgroup, runtime).run()
    os._exit(0)  # nothing is left to tidy up; the interpreter would take its time
