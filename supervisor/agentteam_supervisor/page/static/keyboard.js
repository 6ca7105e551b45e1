// Everything by keyboard. Nothing that interrupts an agent is a single key.

import { h, openDialog } from "./dom.js";
import { say } from "./words.js";

const KEYS = [
  ["Enter", "helpSend"],
  ["Shift+Enter", "helpLine"],
  ["c", "helpWrite"],
  ["/", "helpSearch"],
  ["j  k", "helpMove"],
  ["m", "helpMenu"],
  ["Alt+↓  Alt+↑", "helpConversation"],
  ["s", "helpStop"],
  ["?", "helpThis"],
];

export function listenToKeys(page) {
  document.addEventListener("keydown", (event) => {
    if (
      event.defaultPrevented ||
      event.ctrlKey ||
      event.metaKey ||
      document.querySelector("dialog[open]")
    )
      return;
    if (event.altKey) {
      const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (by) take(event, () => page.sidebar.step(by));
    } else if (event.key === "Escape") leave(page);
    else if (!isTyping(event.target)) single(page, event);
  });
}

function single(page, event) {
  const acts = {
    c: () => page.composer.focus(),
    "/": () => page.search.focus(),
    j: () => page.conversation.step(1),
    k: () => page.conversation.step(-1),
    m: () => page.conversation.chosen?.querySelector(".more")?.click(),
    s: () => page.dock.focusStop(),
    "?": () => showKeys(),
  };
  if (event.key in acts) take(event, acts[event.key]);
}

function leave(page) {
  page.showSidebar(false);
  if (page.search.open) page.search.clear();
  document.activeElement?.blur();
}

function take(event, act) {
  event.preventDefault();
  act();
}

const isTyping = (element) => element.matches("input, textarea, select");

export function showKeys() {
  const rows = KEYS.map(([key, name]) =>
    h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, say(name))),
  );
  openDialog(
    say("helpTitle"),
    h("h2", {}, say("helpTitle")),
    h("table", {}, h("tbody", {}, rows)),
    h("form", { method: "dialog" }, h("button", {}, say("close"))),
  );
}
