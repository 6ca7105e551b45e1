"""Start: what the driver says of itself, and incarnations that open, fail and close."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import trio
from attrs import evolve

from agentteam_protocol.errors import RuntimeFailure, RuntimeMissing
from agentteam_runtimes import driver as d
from agentteam_runtimes.conformance.bench import check, check_alone
from agentteam_runtimes.conformance.verdict import Fault

if TYPE_CHECKING:
    from agentteam_runtimes.conformance.bench import Bench

METHODS = [
    name
    for name, _ in inspect.getmembers(d.Runtime, inspect.isfunction)
    if not name.startswith("_")
]
MISSING = "`probe` and `open` raise `RuntimeMissing`, which says what to do."


@check
async def test_the_driver_declares_what_it_can(bench: Bench) -> None:
    if not bench.driver.name:
        raise Fault("the driver has no name", "`name` is what agents name it by.")
    if getattr(bench.driver, "contract", None) != d.CONTRACT:
        raise Fault(
            f"the driver is not written for contract {d.CONTRACT}",
            "`contract` is the number of the contract that a driver was written for, as"
            " a number of its own.",
        )
    if not bench.able.version:
        raise Fault(
            "probe() tells no version", "`version` is that of the installed runtime."
        )
    if bench.able.rewind:
        raise Fault("the driver declares rewind", "rewind is declared by nobody yet.")


@check
async def test_a_program_that_is_not_there_is_told(bench: Bench) -> None:
    nowhere = evolve(bench.stage.options(), bin="/nonexistent/program")
    try:
        bench.driver.probe(nowhere)
    except RuntimeMissing as missing:
        if missing.what_to_do:
            return
        raise Fault("RuntimeMissing does not say what to do", MISSING) from missing
    raise Fault("probe() found a program where there is none", MISSING)


@check_alone
async def test_a_workdir_that_is_not_there_is_told(bench: Bench) -> None:
    spec = evolve(bench.spec(), workdir=bench.workdir / "nowhere")
    with trio.move_on_after(bench.patience):
        try:
            async with bench.driver.open(spec, None, lambda _: None):
                pass
        except RuntimeFailure:
            return
        raise Fault("open() started in a directory that is not there", MISSING)
    raise Fault("open() in a directory that is not there hung", MISSING)


@check
async def test_a_runtime_has_the_methods_of_the_contract(bench: Bench) -> None:
    async with bench.open() as live:
        for name in METHODS:
            method = getattr(live.runtime, name, None)
            if method is None:
                raise Fault(f"the runtime has no {name}()", "`Runtime` in driver.py.")
            wanted = list(inspect.signature(getattr(d.Runtime, name)).parameters)[1:]
            given = list(inspect.signature(method).parameters)
            if given[: len(wanted)] != wanted:
                raise Fault(
                    f"{name}() takes {given}, not {wanted}", "`Runtime` in driver.py."
                )
        if live.all(d.TurnStarted):
            raise Fault(
                "a turn started before anything was submitted",
                "`open` shakes hands and submits nothing.",
            )


@check_alone
async def test_leaving_ends_the_runtime_whatever_it_does(bench: Bench) -> None:
    async with bench.open() as live:
        await live.begin(bench.stage.stream(30))
        process = live.process
    if process is not None and await bench.gone([process], 2.0):
        raise Fault(
            f"the runtime ({process.pid}) still runs after its context was left",
            "leaving the context of `open` ends all of it.",
        )


@check_alone
async def test_a_start_that_is_cancelled_leaves_nothing(bench: Bench) -> None:
    spec = bench.spec()
    for seconds in (0.0, 0.05, 0.3):
        with trio.move_on_after(bench.patience + seconds) as bound:
            with trio.move_on_after(seconds):
                async with bench.driver.open(spec, None, lambda _: None):
                    await trio.sleep_forever()
            continue  # what is left alive is looked at after every check
        if bound.cancelled_caught:
            raise Fault(
                "open() did not end when it was cancelled",
                "whoever opens may be cancelled at any moment.",
            )
