// One message: who, when, what, and what became of it with each agent.

import { post } from "./api.js";
import { h, replace } from "./dom.js";
import { MessageMenu } from "./menu.js";
import { clock, exact } from "./times.js";
import { rendered } from "./trusted.js";
import { say } from "./words.js";

const LONG = 6000; // characters; the rest is shown when asked for
const NEEDS_PERSON = new Set(["failed", "blocked", "unknown"]);
const SIGNS = {
  queued: "◷",
  accepted: "→",
  surfaced: "✓",
  failed: "!",
  blocked: "!",
  cancelled: "–",
  superseded: "⤳",
  unknown: "?",
};

export function drawMessage(page, message) {
  const mine = message.author.kind === "user";
  const menu = mine
    ? h(
        "button",
        {
          type: "button",
          class: "more",
          "data-role": "more",
          "aria-haspopup": "menu",
          "aria-label": say("more"),
          onclick: () => toggleMenu(page, message),
        },
        "⋯",
      )
    : null;
  const head = h(
    "header",
    {},
    h("b", { class: "author" }, h("bdi", {}, message.author.name)),
    h(
      "time",
      { datetime: message.createdAt, title: exact(message.createdAt) },
      clock(message.createdAt),
    ),
    menu,
  );
  const element = h(
    "li",
    { class: `message ${mine ? "mine" : "theirs"}`, tabindex: "-1", id: `m${message.targetSeq}` },
    head,
    drawBody(message),
    drawDeliveries(page, message),
  );
  element.createdAt = message.createdAt;
  element.message = message;
  return element;
}

function toggleMenu(page, message) {
  if (page.menu?.message.id === message.id) page.menu.close();
  else new MessageMenu(page, message);
}

function drawBody(message) {
  const long = message.body.length > LONG;
  const body = h(
    "div",
    { class: "body", dir: "auto" },
    long ? message.body.slice(0, LONG) + "…" : message.body,
  );
  const whole = () =>
    message.author.kind === "agent" ? showMarkdown(body, message) : replace(body, message.body);
  if (!long) {
    if (message.author.kind === "agent") whole();
    return body;
  }
  const all = h(
    "button",
    {
      type: "button",
      class: "quiet",
      onclick: () => {
        whole();
        all.remove();
      },
    },
    say("showAll"),
  );
  return h("div", {}, body, all);
}

async function showMarkdown(body, message) {
  try {
    const nodes = await rendered(message.id);
    body.classList.add("rendered");
    replace(body, nodes);
  } catch {
    replace(body, message.body); // the words themselves are always there
  }
}

function drawDeliveries(page, message) {
  const several = (page.state.targets.get(message.target)?.agents.length ?? 0) > 1;
  const shown = message.deliveries.filter(
    (each) => each.state !== "superseded" || message.deliveries.length === 1,
  );
  if (!shown.length) return null;
  return h(
    "ul",
    { class: "deliveries" },
    shown.map((each) => drawDelivery(page, each, several)),
  );
}

function drawDelivery(page, delivery, several) {
  const name = page.state.agents.get(delivery.agentId)?.name ?? delivery.agentId;
  const urgent = delivery.interruptPolicy !== null;
  const line = h(
    "span",
    { class: `state ${delivery.state}`, title: evidenceOf(delivery) },
    h("span", { "aria-hidden": "true" }, SIGNS[delivery.state] ?? "·"),
    " ",
    urgent ? h("b", { class: "urgent" }, say("urgent")) : null,
    urgent ? " " : null,
    several ? `${name}: ` : null,
    say(delivery.state),
    delivery.attempt > 1 ? ` (${say("attempt", { n: delivery.attempt })})` : null,
  );
  return h("li", {}, line, urgent ? drawLifecycle(page, delivery) : null, drawProblem(delivery));
}

function evidenceOf(delivery) {
  const { evidence } = delivery;
  return evidence
    ? `${say("evidence", { kind: evidence.kind })}${evidence.at ? ` · ${exact(evidence.at)}` : ""}`
    : null;
}

// The lines of the way of an urgent message, as the server words them.
function drawLifecycle(page, delivery) {
  const lines = [...page.state.runs.values()].flatMap((run) =>
    run.lines.filter((line) => line.deliveryId === delivery.id),
  );
  if (!lines.length) return null;
  lines.sort((a, b) => a.seq - b.seq);
  return h(
    "ol",
    { class: "lifecycle" },
    lines.map((line) => h("li", { class: line.kind }, line.text)),
  );
}

function drawProblem(delivery) {
  if (!NEEDS_PERSON.has(delivery.state)) return null;
  const { problem, whatToDo } = delivery.diagnostic ?? {};
  const failed = h("p", { class: "problem", role: "alert" });
  const resolve = (how) => async (event) => {
    event.currentTarget.disabled = true;
    try {
      await post(`/api/deliveries/${delivery.id}/resolve`, { as: how });
    } catch (error) {
      failed.textContent = error.message;
    }
  };
  return h(
    "div",
    { class: "unhappy" },
    problem ? h("p", {}, problem) : null,
    whatToDo ? h("p", { class: "todo" }, whatToDo) : null,
    h(
      "button",
      { type: "button", "data-role": `again-${delivery.id}`, onclick: resolve("redeliver") },
      say("redeliver"),
    ),
    " ",
    h(
      "button",
      { type: "button", "data-role": `dismiss-${delivery.id}`, onclick: resolve("dismiss") },
      say("dismiss"),
    ),
    failed,
  );
}
