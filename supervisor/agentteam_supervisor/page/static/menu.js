// The menu of a sent message. Mark urgent lives here and nowhere else.

import { post } from "./api.js";
import { announce, h, openDialog, replace } from "./dom.js";
import { exact } from "./times.js";
import { say } from "./words.js";

// What is on its way may come too late to be withdrawn; the agent's side says so then.
const WITHDRAWABLE = new Set(["queued", "accepted"]);

export class MessageMenu {
  constructor(page, message) {
    page.menu?.close();
    page.menu = this;
    Object.assign(this, { page, message });
    this.element = h("div", {
      class: "menu",
      role: "menu",
      popover: "manual",
      "aria-label": say("more"),
    });
    this.element.addEventListener("keydown", (event) => this.#key(event));
    document.body.append(this.element);
    this.away = (event) =>
      this.element.contains(event.target) || this.button?.contains(event.target) || this.close();
    document.addEventListener("pointerdown", this.away);
    this.draw();
    this.element.showPopover();
    this.#place();
    this.#items()[0].focus();
  }

  // The message is drawn anew whenever something becomes of it, and its button with it.
  get button() {
    return document.querySelector(`#m${this.message.targetSeq} .more`);
  }

  // What it offers depends on what the agents do meanwhile.
  draw() {
    const at = this.#items().indexOf(document.activeElement);
    const { state } = this.page;
    const message = state.messageOf(this.message.id) ?? this.message;
    const members = state.membersOf(message.target);
    replace(
      this.element,
      members.map((agent) => this.#urgent(agent, members.length > 1)),
      message.deliveries
        .filter((each) => WITHDRAWABLE.has(each.state))
        .map((each) => this.#entry(say("withdraw"), () => this.#withdraw(each))),
      this.#entry(say("copyText"), () => navigator.clipboard.writeText(message.body)),
      this.#entry(say("copyId"), () => navigator.clipboard.writeText(message.id)),
      this.#entry(say("details"), () => showDetails(this.page, message)),
    );
    if (at >= 0) this.#items()[Math.min(at, this.#items().length - 1)].focus();
    this.button?.setAttribute("aria-expanded", "true");
  }

  close() {
    document.removeEventListener("pointerdown", this.away);
    this.button?.removeAttribute("aria-expanded");
    this.element.remove();
    if (this.page.menu === this) this.page.menu = null;
  }

  // Below its button, or above it where there is no room.
  #place() {
    const at = this.button.getBoundingClientRect();
    const below = at.bottom + this.element.offsetHeight < innerHeight;
    const top = below ? at.bottom + 2 : Math.max(4, at.top - this.element.offsetHeight - 2);
    this.element.style.top = `${top}px`;
    this.element.style.left = `${Math.max(4, at.right - this.element.offsetWidth)}px`;
  }

  #urgent(agent, several) {
    const label = several ? say("markUrgentFor", { agent: agent.name }) : say("markUrgent");
    const runs = agent.status === "running";
    const read = this.message.deliveries.some(
      (each) => each.agentId === agent.id && each.state === "surfaced",
    );
    const why = read ? "markUrgentAgain" : "markUrgentHint";
    const hint = runs ? say(why) : say("urgentIdle", { agent: agent.name });
    return this.#entry(label, () => this.#markUrgent(agent), hint, !runs, "urgent");
  }

  #entry(label, act, hint = null, off = false, kind = null) {
    const chosen = () => {
      if (off) return;
      this.close();
      this.button?.focus();
      act();
    };
    return h(
      "button",
      {
        type: "button",
        role: "menuitem",
        class: kind,
        tabindex: "-1",
        "aria-disabled": off ? "true" : null,
        onclick: chosen,
      },
      label,
      hint ? h("small", {}, hint) : null,
    );
  }

  #markUrgent(agent) {
    if (!this.page.state.pendingOf(agent.id).length) return this.#send(agent);
    const go = () => {
      dialog.close();
      this.#send(agent);
    };
    const dialog = openDialog(
      say("markUrgent"),
      h("p", {}, say("urgentPending")),
      h(
        "p",
        { class: "buttons" },
        h(
          "button",
          { type: "button", onclick: () => dialog.close(), autofocus: true },
          say("cancel"),
        ),
        h("button", { type: "button", class: "urgent", onclick: go }, say("markUrgent")),
      ),
    );
  }

  // One key per message and agent: however often it is clicked, it is one delivery.
  async #send(agent) {
    const path = `/api/messages/${this.message.id}/agent-delivery`;
    const made = await this.#tell(() =>
      post(path, { interruptPolicy: "interrupt_current_run", agentId: agent.id }),
    );
    if (made?.readBefore) announce(say("readBefore", { agent: agent.name }));
  }

  async #withdraw(delivery) {
    await this.#tell(() => post(`/api/deliveries/${delivery.id}/resolve`, { as: "dismiss" }));
  }

  async #tell(call) {
    try {
      const delivery = await call();
      if (delivery?.messageId) this.page.state.addDelivery(delivery);
      return delivery;
    } catch (error) {
      announce(error.message);
      openDialog(
        say("failed"),
        h("p", {}, error.message),
        h("form", { method: "dialog" }, h("button", {}, say("close"))),
      );
    }
  }

  #items() {
    return [...this.element.querySelectorAll('[role="menuitem"]')];
  }

  #key(event) {
    const items = this.#items();
    const at = items.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (to !== undefined) items[(to + items.length) % items.length].focus();
    else if (event.key === "Escape" || event.key === "Tab") {
      this.close();
      this.button?.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  }
}

function showDetails(page, message) {
  const rows = message.deliveries.map((delivery) => {
    const name = page.state.agents.get(delivery.agentId)?.name ?? delivery.agentId;
    const steps = delivery.history.map((step) =>
      h("li", {}, `${exact(step.at)} · ${say(step.state)}${step.note ? ` · ${step.note}` : ""}`),
    );
    const evidence = delivery.evidence
      ? h(
          "p",
          {},
          say("evidence", { kind: delivery.evidence.kind }),
          delivery.evidence.detail ? `: ${delivery.evidence.detail}` : "",
        )
      : null;
    return h("section", {}, h("h3", {}, `${name} · ${delivery.id}`), h("ol", {}, steps), evidence);
  });
  openDialog(
    say("details"),
    h("h2", {}, say("details")),
    h("p", { class: "mono" }, message.id),
    rows,
    h("form", { method: "dialog" }, h("button", {}, say("close"))),
  );
}
