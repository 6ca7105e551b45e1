"""The entry of the command: verbs are imported only when they are used."""

from __future__ import annotations

import importlib
import sys
from importlib.metadata import version
from typing import Any

import click

from agentteam_protocol.activity import Language
from agentteam_supervisor.cli.ending import endings, wants_json
from agentteam_supervisor.cli.speech import language, say

PACKAGE = "agentteam_supervisor.cli"
AS_JSON = f"{PACKAGE}.as_json"

# verb: (module, English help, Chinese help); the module defines a function of that name.
VERBS: dict[str, tuple[str, str, str]] = {
    "up": (
        "up",
        "Start server and daemon in one process.",
        "在一个进程中启动服务端与守护端。",
    ),
    "server": ("apart", "Start the server alone.", "只启动服务端。"),
    "daemon": ("apart", "Start a daemon alone.", "只启动守护端。"),
    "status": ("lifecycle", "Show what runs.", "查看运行状态。"),
    "down": ("lifecycle", "Stop what `up` started.", "停止 `up` 启动的进程。"),
    "agents": (
        "agents",
        "Add, list, set and rm (remove) agents.",
        "添加、列出、更改（set）、移除（rm）agent。",
    ),
    "send": ("send", "Send a message.", "发送消息。"),
    "messages": ("messages", "Show the messages of a target.", "查看会话消息。"),
    "urgent": ("urgent", "Mark a sent message urgent.", "将已发送的消息加急。"),
    "stop": ("control", "Stop the current run of an agent.", "停止 agent 的当前 run。"),
    "resume": ("control", "Let a parked agent go on.", "让暂停的 agent 继续。"),
    "resolve": ("resolve", "Decide about a stuck delivery.", "处置停滞的投递。"),
    "approvals": ("approvals", "List pending approvals.", "列出待审批项。"),
    "approve": ("approvals", "Decide an approval.", "审批。"),
    "watch": ("watch", "Follow what happens, live.", "实时查看动态。"),
    "replay": (
        "replay",
        "Show the ledger of an agent's turns.",
        "查看 agent 的回合台账。",
    ),
    "runtimes": (
        "runtimes",
        "List, check, install and remove runtimes.",
        "列出、检查、安装、移除运行时。",
    ),
    "doctor": ("doctor", "Check this machine.", "检查本机环境。"),
    "chaos": (
        "chaos",
        "Break the product on purpose, and prove what holds.",
        "故意制造故障，并证明哪些仍然成立。",
    ),
}

EPILOG = """
Exit codes:
  0  done
  1  refused or failed
  2  wrong usage
  3  no server reachable
  4  the time was up: no answer, or not ended yet
  130  Ctrl-C (`watch` ends with 0: that is how it is ended)
  141  the reader of the output went away, as in `| head -1`

With --json an error is one JSON object on standard error, with "detail" and
"exitCode"; the exit codes are the same. `doctor` and `runtimes check` end
with 1 when something does not work.
"""

EPILOG_ZH = """
退出码：
  0  完成
  1  被拒绝或失败
  2  用法错误
  3  无法连接服务
  4  等待超时：没有应答，或尚未结束
  130  Ctrl-C（`watch` 以 0 结束：这就是它的结束方式）
  141  输出的读取方已离开，例如 `| head -1`

使用 --json 时，错误是标准错误上的一个 JSON 对象，含 "detail" 与 "exitCode"；退出码相同。
`doctor` 与 `runtimes check` 在有检查项不可用时以 1 结束。
"""


class Verbs(click.Group):
    """A group that knows its verbs' names and first lines without importing them."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        as_json = wants_json(args)
        with endings(as_json):  # it may print the help, or refuse the options
            context = super().make_context(info_name, args, parent, **extra)
        context.meta[AS_JSON] = as_json
        return context

    def invoke(self, ctx: click.Context) -> Any:
        with endings(ctx.meta[AS_JSON]):
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"{PACKAGE}.{VERBS[cmd_name][0]}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def format_commands(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        with formatter.section(say("Commands", "命令")):
            column = 2 if language() is Language.zh else 1
            formatter.write_dl([(name, verb[column]) for name, verb in VERBS.items()])

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(say(EPILOG, EPILOG_ZH))


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        click.echo(version("agentteam-supervisor"))
        ctx.exit()


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Print the version.",
)
def agentteam() -> None:
    """Talk to coding agents, and interrupt them with proof."""


def main() -> None:
    """Run the command in this process."""
    if reconfigure := getattr(sys.stdout, "reconfigure", None):
        # A terminal without our characters gets their numbers instead of nothing.
        reconfigure(errors="backslashreplace")
    agentteam(prog_name="agentteam")
