"""
A small agent of the Agent Client Protocol, a process of its own, in one of these ways.

| way     | it                                                                         |
|---------|----------------------------------------------------------------------------|
| plain   | repeats each prompt, names nothing, keeps nothing                          |
| keeping | keeps sessions below its HOME, lists them in pages of one, has a model     |
| dies    | says why and ends when it is asked what it is                              |
| mute    | never answers                                                              |
| refuses | knows no `initialize`                                                      |
| newer   | speaks another version of the protocol                                     |
| locked  | wants a login                                                              |
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

Message = dict[str, Any]
Params = dict[str, Any]

PROGRAM = (sys.executable, "-I", "-S", __file__)
SAYS = "Heard: "


def tell(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def say(session: str, kind: str, text: str) -> None:
    update = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
    params = {"sessionId": session, "update": update}
    tell(method="session/update", params=params)


class Agent:
    def __init__(self, way: str) -> None:
        self.way = way
        self.place = Path(os.environ["HOME"]) / "sessions"
        self.chosen = "small"

    def initialize(self, params: Params) -> Message:
        if self.way == "dies":
            sys.exit("no model is configured")
        if self.way == "refuses":
            return {"error": {"code": -32601, "message": "Method not found"}}
        keeping = {"loadSession": True, "sessionCapabilities": {"list": {}}}
        answer: Message = {
            "protocolVersion": 2 if self.way == "newer" else params["protocolVersion"],
            "agentCapabilities": keeping if self.way == "keeping" else {},
            "authMethods": [{"id": "key", "name": "Key", "description": "set A_KEY"}],
        }
        if self.way == "keeping":
            answer["agentInfo"] = {"name": "Keeper", "version": "2.5"}
        return {"result": answer}

    def session_new(self, params: Params) -> Message:
        if self.way == "locked":
            return {"error": {"code": -32000, "message": "Authentication required"}}
        session = f"ses-{os.getpid()}"
        self.keep(session, [])
        option = {"id": "llm", "category": "model", "currentValue": self.chosen}
        more = {"configOptions": [option]} if self.way == "keeping" else {}
        return {"result": {"sessionId": session} | more}

    def session_prompt(self, params: Params) -> Message:
        session = params["sessionId"]
        text = "".join(block["text"] for block in params["prompt"])
        say(session, "agent_message_chunk", f"{SAYS}{text} ({self.chosen})")
        self.keep(session, [*self.kept(session), text])
        return {"result": {"stopReason": "end_turn"}}

    def session_load(self, params: Params) -> Message:
        session = params["sessionId"]
        if not (self.place / session).exists():
            return {"error": {"code": -32603, "message": "Internal error"}}
        for text in self.kept(session):
            say(session, "user_message_chunk", text)
            say(session, "agent_message_chunk", SAYS + text)
        return {"result": {}}

    def session_list(self, params: Params) -> Message:
        at = int(params.get("cursor", 0))
        names = ["ses-of-another", *sorted(p.name for p in self.place.iterdir())]
        following = {"nextCursor": str(at + 1)} if at + 1 < len(names) else {}
        return {"result": {"sessions": [{"sessionId": names[at]}]} | following}

    def session_set_model(self, params: Params) -> Message:
        return self.choose(params["modelId"])

    def session_set_config_option(self, params: Params) -> Message:
        assert params["configId"] == "llm"
        return self.choose(params["value"])

    def choose(self, model: str) -> Message:
        if model == "none":
            return {"error": {"code": -32602, "message": "there is no model none"}}
        self.chosen = model
        return {"result": {}}

    # What it keeps.

    def keep(self, session: str, texts: list[str]) -> None:
        if self.way == "keeping":
            self.place.mkdir(exist_ok=True)
            (self.place / session).write_text(json.dumps(texts))

    def kept(self, session: str) -> list[str]:
        path = self.place / session
        return list(json.loads(path.read_text())) if path.exists() else []


def main() -> None:
    agent = Agent(sys.argv[1])
    for line in sys.stdin:
        message = json.loads(line)
        method = getattr(agent, message["method"].replace("/", "_"), None)
        if method is not None and "id" in message and agent.way != "mute":
            tell(id=message["id"], **method(message["params"]))


if __name__ == "__main__":
    main()
