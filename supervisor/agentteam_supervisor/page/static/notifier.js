// Notifications of the browser, for who asked for them and looks elsewhere.

import { recall } from "./remembered.js";
import { say } from "./words.js";

export class Notifier {
  constructor(state) {
    this.state = state;
    this.told = new Set();
    state.listen((kind, object) => this.#heard(kind, object));
  }

  #heard(kind, object) {
    if (kind === "approval" && object.state === "pending")
      this.#tell(object.id, object.agentId, (agent) =>
        say("asks", { agent, tool: object.toolName }),
      );
    if (kind === "run" && object.over)
      for (const turn of object.turns.values())
        if (turn.outcome === "error")
          this.#tell(
            `${object.id} ${turn.turn}`,
            object.agentId,
            (agent) => `${say("runOf", { agent })}: ${say("error")}`,
          );
  }

  #tell(id, agentId, words) {
    if (this.told.has(id)) return;
    this.told.add(id);
    if (!recall("notify") || document.visibilityState === "visible") return;
    if (globalThis.Notification?.permission !== "granted") return;
    new Notification("AgentTeam", {
      body: words(this.state.agents.get(agentId)?.name ?? ""),
      tag: id,
    });
  }
}
