"""What people see of a run: the lines of the spec, in two languages."""

from __future__ import annotations

import enum


class ActivityKind(enum.StrEnum):
    requested = "requested"
    stopping = "stopping"
    interrupted = "interrupted"
    started = "started"
    failed = "failed"
    run_started = "run_started"
    progress = "progress"
    run_ended = "run_ended"
    approval_asked = "approval_asked"
    approval_decided = "approval_decided"
    notice = "notice"


class Language(enum.StrEnum):
    zh = "zh"
    en = "en"


# interrupt spec §4.2: these four lines, and no signal names (R126, R127).
_LINES: dict[ActivityKind, dict[Language, str]] = {
    ActivityKind.requested: {
        Language.zh: "{who} 请求打断当前 run",
        Language.en: "{who} asked to interrupt the current run",
    },
    ActivityKind.stopping: {
        Language.zh: "正在停止当前 run…",
        Language.en: "Stopping the current run…",
    },
    ActivityKind.interrupted: {
        Language.zh: "当前 run 已打断",
        Language.en: "The current run was interrupted",
    },
    ActivityKind.started: {
        Language.zh: "正在处理 {who} 的新请求",
        Language.en: "Working on the new request of {who}",
    },
    ActivityKind.failed: {
        Language.zh: "无法处理 {who} 的新请求：{problem}",
        Language.en: "The new request of {who} failed: {problem}",
    },
    ActivityKind.run_started: {Language.zh: "开始工作", Language.en: "Started working"},
    ActivityKind.progress: {Language.zh: "{text}", Language.en: "{text}"},
    ActivityKind.run_ended: {
        Language.zh: "run 已结束：{outcome}",
        Language.en: "The run ended: {outcome}",
    },
    ActivityKind.approval_asked: {
        Language.zh: "等待审批：{tool}",
        Language.en: "Waiting for approval: {tool}",
    },
    ActivityKind.approval_decided: {
        Language.zh: "审批结果（{tool}）：{outcome}",
        Language.en: "Approval of {tool}: {outcome}",
    },
    ActivityKind.notice: {Language.zh: "{text}", Language.en: "{text}"},
}

_STOPPED_BY = {Language.zh: "已被 {who} 打断", Language.en: "Interrupted by {who}"}


class _Words(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return ""


def render(kind: ActivityKind, words: dict[str, str], language: Language) -> str:
    """
    Make the user-facing line.

    `words` may hold who, problem, tool, outcome and text; what is missing stays
    empty. A run that a person stopped ends as "Interrupted by @who" (R124).
    """
    line = _LINES[kind][language]
    if kind is ActivityKind.run_ended and words.get("stopped_by"):
        line = _STOPPED_BY[language]
        words = {**words, "who": words["stopped_by"]}
    return line.format_map(_Words(words))
