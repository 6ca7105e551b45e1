// The page: loads what there is, follows what happens, and shows both.
//
// Reading order: `state` (what is known), `stream` (how it stays true), then what is
// seen, left to right: `sidebar`, `conversation` with `message` and `run`, `dock`,
// `composer`.

import { everything, get } from "./api.js";
import { Composer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { Dock } from "./dock.js";
import { announce, h, replace } from "./dom.js";
import { listenToKeys } from "./keyboard.js";
import { Notifier } from "./notifier.js";
import { recall, remember } from "./remembered.js";
import { applyTheme } from "./settings.js";
import { Sidebar } from "./sidebar.js";
import { SearchBox } from "./search.js";
import { State } from "./state.js";
import { follow } from "./stream.js";
import { language, say } from "./words.js";

const NEWEST = 200; // activity lines and runs that are read when the page begins

class Page {
  state = new State();
  target = null;

  constructor() {
    document.documentElement.lang = language() === "zh" ? "zh-Hans" : "en";
    applyTheme();
    this.sidebar = new Sidebar(this);
    this.conversation = new Conversation(this);
    this.dock = new Dock(this);
    this.composer = new Composer(this);
    this.search = new SearchBox(this);
    this.notifier = new Notifier(this.state);
    this.title = h("h1");
    this.link = h("p", { class: "link", role: "alert", hidden: true }, say("reconnecting"));
    this.drawer = h(
      "button",
      {
        class: "drawer",
        type: "button",
        "aria-label": say("menu"),
        onclick: () => this.showSidebar(true),
      },
      "☰",
    );
    const bar = h("header", {}, this.drawer, this.title, this.search.element);
    const main = h(
      "main",
      {},
      bar,
      this.link,
      this.conversation.element,
      this.dock.element,
      this.composer.element,
    );
    replace(document.body, this.sidebar.element, main);
    announce("");
    this.state.listen((kind, object) => this.#changed(kind, object));
    listenToKeys(this);
    addEventListener("hashchange", () => this.#choose(this.#wanted()));
    setInterval(() => this.dock.tick(), 1000);
  }

  run() {
    follow(
      (kind, data) => (kind === "gap" ? this.#heal(data) : this.state.take(kind, data)),
      (connected) => (this.link.hidden = connected),
    );
  }

  // What was missed is read anew, all of it.
  async #heal(gap) {
    await this.load();
    if (gap.reason) announce(say("gap"));
  }

  async load() {
    const [agents, targets] = await Promise.all([
      everything("/api/agents", "agents"),
      everything("/api/targets", "targets"),
    ]);
    for (const known of this.state.agents.keys())
      if (!agents.some((agent) => agent.id === known))
        this.state.addAgent({ id: known, deleted: true });
    for (const target of targets) this.state.addTarget(target);
    for (const agent of agents) this.state.addAgent(agent);
    this.ready = true;
    if (this.target) await this.conversation.load();
    else this.#choose(this.#wanted());
    await Promise.all(agents.map((agent) => this.#recent(agent)));
  }

  async #recent(agent) {
    const [{ items }, { runs }] = await Promise.all([
      get(`/api/agents/${agent.id}/activity?newest=${NEWEST}`),
      get(`/api/agents/${agent.id}/runs?newest=${NEWEST}`),
    ]);
    for (const turn of runs) this.state.addTurn(agent.id, turn);
    for (const line of items) this.state.addActivity(line);
  }

  // A run has ended: its line of the ledger says how.
  async refreshRuns(agentId) {
    const { runs } = await get(`/api/agents/${agentId}/runs?newest=5`);
    for (const turn of runs) this.state.addTurn(agentId, turn);
  }

  open(target, seq = null) {
    const hash = `#${encodeURIComponent(this.state.targets.get(target)?.name ?? target)}`;
    if (location.hash !== hash) history.pushState(null, "", hash);
    this.#choose(target, seq);
    this.showSidebar(false);
  }

  showSidebar(shown) {
    document.body.classList.toggle("with-sidebar", shown);
    if (shown) this.sidebar.focus();
  }

  #wanted() {
    const name = decodeURIComponent(location.hash.slice(1)) || recall("target");
    const live = [...this.state.targets.values()].filter((target) => !target.retired);
    return (live.find((target) => target.name === name) ?? live[0])?.id ?? null;
  }

  #choose(target, seq = null) {
    if (target !== this.target) {
      this.target = target;
      const name = target ? this.state.targets.get(target).name : "AgentTeam";
      if (target) remember("target", name);
      this.title.textContent = name;
      document.title = `${name} · AgentTeam`;
      this.composer.open(target);
      this.search.clear();
      this.conversation.open(target, seq);
    } else if (seq !== null) this.conversation.show(seq);
    this.sidebar.draw();
    this.dock.draw();
  }

  #changed(kind, object) {
    if (kind === "message") this.#unknownTarget(object.target);
    if (kind === "agent" && object.target) this.#unknownTarget(object.target.id);
    if (kind === "run" && object.over && ![...object.turns.values()].some((turn) => turn.outcome))
      this.refreshRuns(object.agentId);
    if (!this.ready) return;
    this.sidebar.changed(kind, object);
    this.conversation.changed(kind, object);
    this.dock.changed(kind, object);
    if (kind === "agent" || kind === "message") this.menu?.draw();
  }

  async #unknownTarget(id) {
    if (!this.ready || this.state.targets.has(id)) return;
    for (const target of await everything("/api/targets", "targets")) this.state.addTarget(target);
    if (!this.target) this.#choose(this.#wanted());
  }
}

const page = new Page();
page.run();
