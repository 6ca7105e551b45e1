// Middle: the messages of one conversation in their order, and the runs between them.

import { get } from "./api.js";
import { announce, h } from "./dom.js";
import { drawMessage } from "./message.js";
import { markRead, readUpTo } from "./reading.js";
import { drawRun, startOf } from "./run.js";
import { say } from "./words.js";

const PAGE = 200;
const NEAR = 80; // pixels from the end that still count as being there

export class Conversation {
  constructor(page) {
    this.page = page;
    this.log = h("ol", { class: "log", "aria-label": say("conversations") });
    this.top = h("p", { class: "top" });
    this.jump = h("button", {
      type: "button",
      class: "jump",
      hidden: true,
      onclick: () => this.toEnd(),
    });
    this.scroller = h(
      "div",
      { class: "scroller", tabindex: "0", role: "region", "aria-label": say("conversations") },
      this.top,
      this.log,
    );
    this.element = h("section", { class: "conversation" }, this.scroller, this.jump);
    this.oldest = null; // the lowest sequence that was read; null: nothing yet
    this.elements = new Map(); // key -> element; its place in the order is `element.place`
    this.scroller.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    new IntersectionObserver((seen) => seen.at(-1).isIntersecting && this.#older(), {
      root: this.scroller,
      rootMargin: "600px 0px 0px 0px",
    }).observe(this.top);
    const resized = new ResizeObserver(() => this.following && this.toEnd());
    resized.observe(this.log);
    resized.observe(this.scroller);
  }

  get target() {
    return this.page.target;
  }

  async open(target, seq = null) {
    this.page.menu?.close();
    this.elements.clear();
    this.log.replaceChildren();
    this.chosen = null;
    this.oldest = null;
    this.following = true;
    this.unreadAfter = target ? readUpTo(this.page.state, target) : 0;
    if (target) await this.load(seq);
  }

  // Reads the newest page, or the one around `seq`, and shows what is known.
  async load(seq = null) {
    const target = this.target;
    const { head } = this.page.state.targets.get(target);
    const from = seq === null ? Math.min(head - PAGE, this.unreadAfter - 5) : seq - PAGE / 2;
    await this.#read(target, Math.max(0, from, seq === null ? head - 10 * PAGE : 0));
    if (target !== this.target) return;
    this.draw();
    if (seq !== null) this.show(seq);
    else if (this.unreadAfter > 0 && this.unreadAfter < head)
      this.show(this.unreadAfter + 1, false);
    else this.toEnd();
  }

  async #read(target, after, until = Infinity) {
    for (let from = after; ;) {
      const limit = Math.min(1000, until - from);
      const { messages, head } = await get(
        `/api/targets/${target}/messages?after=${from}&limit=${limit}`,
      );
      for (const message of messages) this.page.state.addMessage(message);
      from = messages.at(-1)?.targetSeq ?? head;
      if (from >= Math.min(head, until)) break;
    }
    if (target === this.target) this.oldest = Math.min(this.oldest ?? Infinity, after + 1);
  }

  async #older() {
    if (this.reading || this.oldest === null || this.oldest <= 1) return;
    this.reading = true;
    const [before, height] = [this.oldest - 1, this.scroller.scrollHeight];
    try {
      await this.#read(this.target, Math.max(0, before - PAGE), before);
      this.draw();
      if (!this.following) this.scroller.scrollTop += this.scroller.scrollHeight - height;
    } finally {
      this.reading = false;
    }
  }

  draw() {
    const there = this.page.state.messagesOf(this.target);
    const missing = [...there.values()].filter(
      (each) => each.targetSeq >= this.oldest && !this.elements.has(`m${each.targetSeq}`),
    );
    missing.sort((a, b) => b.targetSeq - a.targetSeq); // each goes to the front at once
    for (const message of missing) this.#drawMessage(message);
    for (const run of this.page.state.runs.values()) this.#drawRun(run);
    const words = !there.size ? "empty" : this.oldest > 1 ? "older" : "beginning";
    this.top.textContent = say(words);
    this.#divide();
  }

  changed(kind, object) {
    if (!this.target || this.oldest === null) return;
    if (kind === "message" && object.target === this.target && object.targetSeq >= this.oldest) {
      const isNew = !this.elements.has(`m${object.targetSeq}`);
      this.#drawMessage(object);
      if (isNew) this.#arrived(object);
    } else if (kind === "run" || kind === "text") this.#drawRun(object, kind === "text");
  }

  #arrived(message) {
    this.top.textContent = say(this.oldest > 1 ? "older" : "beginning");
    announce(say("said", { who: message.author.name, text: message.body.slice(0, 200) }));
    if (this.following || message.author.kind === "user") this.toEnd();
    else this.#showJump();
  }

  #drawMessage(message) {
    this.#put(`m${message.targetSeq}`, message.targetSeq, drawMessage(this.page, message));
  }

  #drawRun(run, textOnly = false) {
    const members = this.page.state.membersOf(this.target);
    const at = startOf(run);
    if (!at || !members.some((agent) => agent.id === run.agentId)) return;
    const known = this.elements.get(`r${run.id}`);
    if (known && textOnly) {
      known.update(run);
      return;
    }
    const place = known?.place ?? this.#placeOf(at);
    if (place !== null) this.#put(`r${run.id}`, place, drawRun(this.page, run, known));
  }

  // After the last message that was there when the run began.
  #placeOf(at) {
    let place = null;
    for (const element of this.log.children)
      if (element.createdAt && element.createdAt <= at) place = element.place + 0.5;
    return place ?? (this.oldest <= 1 ? 0.5 : null);
  }

  #put(key, place, element) {
    element.place = place;
    const known = this.elements.get(key);
    this.elements.set(key, element);
    if (known === element) return;
    if (known) {
      if (known === this.chosen) this.choose(element, false);
      const focused = known.contains(document.activeElement) && document.activeElement.dataset.role;
      known.replaceWith(element);
      if (focused) element.querySelector(`[data-role="${focused}"]`)?.focus();
      return;
    }
    let next = null;
    if (place < this.log.firstElementChild?.place) next = this.log.firstElementChild;
    else
      for (
        let last = this.log.lastElementChild;
        last && last.place > place;
        last = last.previousElementSibling
      )
        next = last;
    this.log.insertBefore(element, next);
  }

  #divide() {
    this.log.querySelector(".divided")?.classList.remove("divided");
    const head = this.page.state.targets.get(this.target)?.head ?? 0;
    if (!this.unreadAfter || this.unreadAfter >= head) return;
    const first = this.elements.get(`m${this.unreadAfter + 1}`);
    first?.classList.add("divided");
    first?.setAttribute("data-divider", say("newMessages"));
  }

  async show(seq, chosen = true) {
    if (!this.elements.has(`m${seq}`))
      await this.#read(this.target, Math.max(0, seq - PAGE / 2), this.oldest - 1);
    if (!this.elements.has(`m${seq}`)) this.draw();
    const element = this.elements.get(`m${seq}`);
    if (!element) return;
    this.following = false;
    if (chosen) this.choose(element);
    element.scrollIntoView({ block: chosen ? "center" : "start" });
  }

  toEnd() {
    this.following = true;
    this.scroller.scrollTop = this.scroller.scrollHeight;
    this.#read_all();
  }

  #scrolled() {
    const left = this.scroller.scrollHeight - this.scroller.scrollTop - this.scroller.clientHeight;
    this.following = left < NEAR;
    if (this.following) this.#read_all();
    else this.#showJump();
  }

  #read_all() {
    this.jump.hidden = true;
    const head = this.page.state.targets.get(this.target)?.head;
    if (head && document.visibilityState === "visible") markRead(this.target, head);
  }

  #showJump() {
    const head = this.page.state.targets.get(this.target)?.head ?? 0;
    const unread = head - readUpTo(this.page.state, this.target);
    this.jump.hidden = false;
    this.jump.textContent =
      unread > 0 ? `↓ ${say("unread", { n: unread })}` : `↓ ${say("toNewest")}`;
  }

  choose(element, focus = true) {
    this.chosen?.classList.remove("chosen");
    this.chosen = element;
    element?.classList.add("chosen");
    if (focus) element?.focus({ preventScroll: true });
  }

  // The message before or after the chosen one.
  step(by) {
    const messages = [...this.log.querySelectorAll(".message")];
    const at = this.chosen ? messages.indexOf(this.chosen) : messages.length;
    const next = messages[Math.min(messages.length - 1, Math.max(0, at + by))];
    if (!next) return;
    this.choose(next);
    next.scrollIntoView({ block: "nearest" });
  }
}
