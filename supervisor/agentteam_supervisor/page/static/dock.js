// Between the messages and the composer: what the agents here do, and what they ask.

import { post } from "./api.js";
import { announce, h, replace } from "./dom.js";
import { conditionOf } from "./state.js";
import { since } from "./times.js";
import { say } from "./words.js";

const CLOSED_STAYS = 6000; // ms that a question stays readable after it was closed

export class Dock {
  constructor(page) {
    this.page = page;
    this.strips = h("div", { class: "strips" });
    this.cards = h("div", { class: "cards" });
    this.element = h(
      "section",
      { class: "dock", "aria-label": say("agents") },
      this.cards,
      this.strips,
    );
    this.stopping = new Set(); // runs that were told to stop here
    this.closing = new Map(); // approvals that were closed while people looked
  }

  changed(kind, object) {
    if (kind === "approval") this.#decided(object);
    if (kind === "agent" || kind === "approval" || kind === "run") this.draw();
  }

  tick() {
    for (const time of this.strips.querySelectorAll("[data-since]"))
      time.textContent = since(time.dataset.since);
  }

  draw() {
    const { state, target } = this.page;
    const members = target ? state.membersOf(target) : [];
    keyed(this.strips, members.map((agent) => this.#strip(agent)).filter(Boolean));
    const asked = members.flatMap((agent) => state.pendingOf(agent.id));
    const closed = [...this.closing.values()].filter((each) =>
      members.some((agent) => agent.id === each.agentId),
    );
    keyed(
      this.cards,
      [...asked, ...closed].map((each) => this.#card(each)),
    );
  }

  #strip(agent) {
    const condition = conditionOf(this.page.state, agent);
    if (condition === "idle") return null;
    if (condition === "parked")
      return this.#still(
        agent,
        "parked",
        say("parkedWords", { agent: agent.name, n: agent.waiting ?? 0 }),
      );
    if (condition === "offline")
      return this.#still(agent, "offline", agent.problem.problem, agent.problem.whatToDo);
    const run = agent.currentRun;
    const stopping = condition === "stopping" || (run && this.stopping.has(run.id));
    const line = stopping ? say("stopped") : (run?.activity ?? say(condition));
    const stop = run
      ? h(
          "button",
          {
            type: "button",
            class: "stop",
            "data-role": "stop",
            disabled: stopping,
            onclick: () => this.#stop(agent, run.id),
          },
          say("stop"),
        )
      : null;
    return h(
      "div",
      { class: `strip ${condition}`, "data-key": agent.id },
      h("span", { class: `dot ${condition}`, "aria-hidden": "true" }),
      h("b", {}, agent.name),
      h("span", { class: "line" }, line),
      run?.startedAt
        ? h("span", { class: "time", "data-since": run.startedAt }, since(run.startedAt))
        : null,
      stop,
    );
  }

  #still(agent, condition, words, todo = null) {
    const resume = h(
      "button",
      {
        type: "button",
        "data-role": "resume",
        onclick: () => this.#control(agent, { action: "resume" }),
      },
      say("resume"),
    );
    return h(
      "div",
      { class: `strip ${condition}`, "data-key": agent.id },
      h("span", { class: `dot ${condition}`, "aria-hidden": "true" }),
      h("b", {}, agent.name),
      h("span", { class: "line" }, words, todo ? h("small", {}, todo) : null),
      resume,
    );
  }

  async #stop(agent, runId) {
    this.stopping.add(runId);
    this.draw();
    announce(say("stopped"));
    if (!(await this.#control(agent, { action: "interrupt_current_run", runId })))
      this.stopping.delete(runId);
    this.draw();
  }

  async #control(agent, body) {
    try {
      await post(`/api/agents/${agent.id}/control`, body);
      return true;
    } catch (error) {
      announce(error.message); // a run that has ended meanwhile needs no stop
      return error.status === 409;
    }
  }

  #card(asked) {
    const agent = this.page.state.agents.get(asked.agentId);
    const name = agent?.name ?? asked.agentId;
    const head = h("h3", {}, say("asks", { agent: name, tool: asked.toolName }));
    const input = asked.input
      ? h("pre", { tabindex: "0", "aria-label": say("input") }, asked.input)
      : null;
    const reason = asked.reason ? h("p", {}, asked.reason) : null;
    const end =
      asked.state === "pending"
        ? this.#buttons(asked)
        : h("p", { class: "outcome" }, outcomeOf(asked));
    return h(
      "article",
      { class: `card ${asked.state}`, "data-key": `${asked.id} ${asked.state}` },
      head,
      reason,
      input,
      end,
    );
  }

  #buttons(asked) {
    const decide = (outcome) => async (event) => {
      for (const button of event.currentTarget.parentElement.children) button.disabled = true;
      try {
        await post(`/api/approvals/${asked.id}/decision`, { outcome });
      } catch (error) {
        announce(error.message); // it was decided or closed before: its card says so
      }
    };
    return h(
      "p",
      { class: "buttons" },
      h(
        "button",
        {
          type: "button",
          class: "allow",
          "data-role": `allow-${asked.id}`,
          onclick: decide("allowed-once"),
        },
        say("allow"),
      ),
      h(
        "button",
        { type: "button", "data-role": `reject-${asked.id}`, onclick: decide("rejected") },
        say("reject"),
      ),
    );
  }

  #decided(asked) {
    if (asked.state === "pending") return;
    const wasShown = [...this.cards.children].some(
      (card) => card.dataset.key === `${asked.id} pending`,
    );
    if (!wasShown) return;
    this.closing.set(asked.id, asked);
    announce(outcomeOf(asked));
    setTimeout(() => {
      this.closing.delete(asked.id);
      this.draw();
    }, CLOSED_STAYS);
  }

  focusStop() {
    this.strips.querySelector('[data-role="stop"]:not(:disabled)')?.focus();
  }
}

function outcomeOf(asked) {
  if (asked.state === "cancelled") return say("closedByCut");
  const outcome = say(asked.state);
  return asked.decidedBy ? say("decidedBy", { outcome, who: asked.decidedBy }) : outcome;
}

// Replaces only what looks different, so that focus and selection stay where they are.
function keyed(parent, wanted) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  const kept = wanted.map((element) => {
    const there = known.get(element.dataset.key);
    if (there?.outerHTML === element.outerHTML) return there;
    const role = there?.contains(document.activeElement)
      ? document.activeElement.dataset.role
      : null;
    if (role) requestAnimationFrame(() => element.querySelector(`[data-role="${role}"]`)?.focus());
    return element;
  });
  if (
    kept.length !== parent.children.length ||
    kept.some((element, at) => parent.children[at] !== element)
  )
    replace(parent, kept);
}
