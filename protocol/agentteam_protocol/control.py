"""Controls of a running agent, and the host's requests of the intervention surface."""

from __future__ import annotations

import enum


class ControlAction(enum.StrEnum):
    interrupt_current_run = "interrupt_current_run"  # Stop
    resume = "resume"  # un-park


class ControlResult(enum.StrEnum):
    stopping = "stopping"
    stale_run = "stale_run"
    not_running = "not_running"
    resumed = "resumed"


class CutCause(enum.StrEnum):
    """Why a run was cut; the first cause wins and stands in its `turn/end`."""

    urgent = "urgent"
    stop = "stop"
    cancel = "cancel"
    silent = "silent"
    disposed = "disposed"
    shutdown = "shutdown"
    lease_lost = "lease_lost"


class Resolution(enum.StrEnum):
    """What a person decides about a delivery that is not going anywhere."""

    redeliver = "redeliver"
    dismiss = "dismiss"


class Method(enum.StrEnum):
    """The seven methods of the intervention surface."""

    followup = "followup"
    steer = "steer"
    inject = "inject"
    send = "send"
    cancel = "cancel"
    when_idle = "when_idle"
    run_maintenance = "run_maintenance"
