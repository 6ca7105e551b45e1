// What the page knows: a fold of the server's answers and events.
//
// Every event carries its object whole, so that applying one twice changes nothing.

const LINES = 200; // activity kept per run
const TEXT = 200_000; // characters of a run's live text; the beginning is kept
const OVER = new Set(["run_ended"]);

export class State {
  agents = new Map();
  targets = new Map();
  messages = new Map(); // target id -> Map of targetSeq -> message
  runs = new Map(); // run id -> {id, agentId, text, lines, turns}
  approvals = new Map();
  #listeners = new Set();
  #byId = new Map(); // message id -> message
  #deliveries = new Map(); // delivery id -> delivery; events may outrun messages

  listen(listener) {
    this.#listeners.add(listener);
  }

  #tell(kind, object) {
    for (const listener of this.#listeners) listener(kind, object);
  }

  take(kind, data) {
    if (kind === "message") this.addMessage(data);
    else if (kind === "delivery") this.addDelivery(data);
    else if (kind === "agent") this.addAgent(data);
    else if (kind === "activity") this.addActivity(data);
    else if (kind === "approval") this.addApproval(data);
  }

  addAgent(agent) {
    if (agent.deleted) this.agents.delete(agent.id);
    else this.agents.set(agent.id, agent);
    for (const asked of agent.pendingApprovals ?? []) this.approvals.set(asked.id, asked);
    this.#tell("agent", agent);
  }

  addTarget(target) {
    this.targets.set(target.id, { ...this.targets.get(target.id), ...target });
    this.#tell("target", target);
  }

  addMessage(message) {
    const there = this.messagesOf(message.target);
    const known = there.get(message.targetSeq);
    const deliveries = message.deliveries.map((d) => newer(this.#deliveries.get(d.id), d));
    for (const one of deliveries) this.#deliveries.set(one.id, one);
    for (const old of known?.deliveries ?? [])
      if (!deliveries.some((d) => d.id === old.id)) deliveries.push(old);
    const current = { ...message, deliveries };
    there.set(message.targetSeq, current);
    this.#byId.set(message.id, current);
    const target = this.targets.get(message.target);
    if (target) target.head = Math.max(target.head, message.targetSeq);
    this.#tell("message", current);
  }

  addDelivery(delivery) {
    const current = newer(this.#deliveries.get(delivery.id), delivery);
    this.#deliveries.set(delivery.id, current);
    const message = this.#byId.get(delivery.messageId);
    if (!message) return;
    const at = message.deliveries.findIndex((d) => d.id === delivery.id);
    if (at < 0) message.deliveries.push(current);
    else message.deliveries[at] = current;
    this.#tell("message", message);
  }

  addActivity(line) {
    if (!line.runId) return;
    const run = this.runOf(line.runId, line.agentId);
    if (line.kind === "progress" && line.seq === null) {
      run.text = (run.text + line.text).slice(0, TEXT);
      this.#tell("text", run);
      return;
    }
    if (run.lines.some((known) => known.seq === line.seq)) return;
    run.lines.push(line);
    run.lines.sort((a, b) => a.seq - b.seq);
    run.lines.splice(0, run.lines.length - LINES);
    run.over ||= OVER.has(line.kind);
    this.#tell("run", run);
    const message = this.messageOf(this.#deliveries.get(line.deliveryId)?.messageId);
    if (message) this.#tell("message", message); // it shows its own way
  }

  // One turn of a run, as the server's ledger has it.
  addTurn(agentId, turn) {
    const run = this.runOf(turn.id, agentId);
    run.turns.set(turn.turn, turn);
    run.over ||= turn.outcome !== null;
    this.#tell("run", run);
  }

  addApproval(approval) {
    this.approvals.set(approval.id, approval);
    this.#tell("approval", approval);
  }

  messagesOf(target) {
    if (!this.messages.has(target)) this.messages.set(target, new Map());
    return this.messages.get(target);
  }

  messageOf(id) {
    return this.#byId.get(id) ?? null;
  }

  runOf(id, agentId) {
    if (!this.runs.has(id))
      this.runs.set(id, { id, agentId, text: "", lines: [], turns: new Map(), over: false });
    return this.runs.get(id);
  }

  membersOf(target) {
    const ids = this.targets.get(target)?.agents.map((a) => a.id) ?? [];
    return ids.map((id) => this.agents.get(id)).filter(Boolean);
  }

  pendingOf(agent) {
    return [...this.approvals.values()].filter(
      (asked) => asked.agentId === agent && asked.state === "pending",
    );
  }
}

// Of two views of one delivery the one with the longer history is the later one.
function newer(known, delivery) {
  if (!known) return delivery;
  return known.history.length > delivery.history.length ? known : delivery;
}

// What an agent does, as one word that people read.
export function conditionOf(state, agent) {
  if (state.pendingOf(agent.id).length) return "asking";
  if (agent.status === "running")
    return agent.detail.phase.toLowerCase() === "converging" ? "stopping" : "working";
  if (agent.problem) return "offline";
  return agent.parked ? "parked" : "idle";
}
