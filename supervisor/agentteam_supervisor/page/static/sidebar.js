// Left: who there is, what each does, and where something new was said.

import { h, replace } from "./dom.js";
import { askNewAgent, askNewConversation } from "./forms.js";
import { unreadOf } from "./reading.js";
import { openSettings } from "./settings.js";
import { conditionOf } from "./state.js";
import { say } from "./words.js";

const REDRAWN_BY = new Set(["agent", "approval", "target", "message"]);

export class Sidebar {
  constructor(page) {
    this.page = page;
    this.agents = h("ul");
    this.conversations = h("ul");
    this.others = h("section", {}, h("h2", {}, say("conversations")), this.conversations);
    const nav = h(
      "nav",
      { "aria-label": say("agents") },
      h("section", {}, h("h2", {}, say("agents")), this.agents),
      this.others,
    );
    const make = h(
      "p",
      { class: "make" },
      h("button", { type: "button", onclick: () => askNewAgent(page) }, say("newAgent")),
      h(
        "button",
        { type: "button", onclick: () => askNewConversation(page) },
        say("newConversation"),
      ),
    );
    const foot = h(
      "footer",
      {},
      make,
      h(
        "button",
        { type: "button", class: "settings", onclick: () => openSettings() },
        say("settings"),
      ),
    );
    this.element = h("aside", { class: "sidebar" }, nav, foot);
    this.element.addEventListener(
      "click",
      (event) => event.target === this.element && page.showSidebar(false),
    );
  }

  changed(kind) {
    if (REDRAWN_BY.has(kind)) this.#soon();
  }

  // However much happens, the list is drawn once a frame.
  #soon() {
    this.due ??= requestAnimationFrame(() => {
      this.due = null;
      this.draw();
    });
  }

  draw() {
    const { state } = this.page;
    const agents = [...state.agents.values()].filter((agent) => agent.target);
    replace(
      this.agents,
      agents.map((agent) => this.#agent(agent)),
    );
    if (!agents.length && this.page.ready)
      replace(this.agents, h("li", { class: "none" }, say("noAgents")));
    const others = [...state.targets.values()].filter(
      (target) => !target.direct && !target.retired,
    );
    replace(
      this.conversations,
      others.map((target) => this.#conversation(target)),
    );
    this.others.hidden = !others.length;
  }

  #agent(agent) {
    const condition = conditionOf(this.page.state, agent);
    return this.#entry(agent.target.id, [
      h("span", { class: `dot ${condition}`, "aria-hidden": "true" }),
      h("span", { class: "name" }, agent.name),
      h("span", { class: "condition" }, say(condition)),
    ]);
  }

  #conversation(target) {
    const who = target.agents.map((agent) => agent.name).join(", ");
    return this.#entry(target.id, [
      h("span", { class: "dot group", "aria-hidden": "true" }),
      h("span", { class: "name" }, `#${target.name}`),
      h("span", { class: "condition" }, who),
    ]);
  }

  #entry(target, parts) {
    const unread = target === this.page.target ? 0 : unreadOf(this.page.state, target);
    const badge = unread
      ? h(
          "span",
          { class: "badge", "aria-label": say("unread", { n: unread }) },
          unread > 99 ? "99+" : unread,
        )
      : null;
    const current = target === this.page.target ? "page" : null;
    return h(
      "li",
      {},
      h(
        "button",
        { type: "button", "aria-current": current, onclick: () => this.page.open(target) },
        parts,
        badge,
      ),
    );
  }

  // The one before or after the open one.
  step(by) {
    const entries = [...this.element.querySelectorAll("nav button")];
    const at = entries.findIndex((entry) => entry.hasAttribute("aria-current"));
    entries.at((at + by + entries.length) % entries.length)?.click();
  }

  focus() {
    this.element.querySelector("[aria-current]")?.focus();
  }
}
