"""A tool server that a runtime starts for itself: it offers nothing, and stays."""

from __future__ import annotations

import json
import sys
from typing import Any


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Answer as a server without tools does."""
    if request["method"] == "initialize":
        version = request["params"]["protocolVersion"]
        about = {"name": "idle", "version": "1"}
        able: dict[str, Any] = {"tools": {}}
        return {"protocolVersion": version, "capabilities": able, "serverInfo": about}
    return {"tools": []} if request["method"] == "tools/list" else {}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            reply = {"jsonrpc": "2.0", "id": request["id"], "result": answer(request)}
            print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
