// Search in the whole history of the open conversation, by the server.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import { clock } from "./times.js";
import { say } from "./words.js";

const PAUSE = 200; // ms after the last key
const AROUND = 60; // characters

export class SearchBox {
  constructor(page) {
    this.page = page;
    this.input = h("input", {
      type: "search",
      placeholder: say("search"),
      "aria-label": say("search"),
      oninput: () => this.#soon(),
    });
    this.results = h("div", {
      class: "results",
      role: "region",
      "aria-label": say("search"),
      hidden: true,
    });
    this.element = h("search", {}, this.input, this.results);
  }

  get open() {
    return !this.results.hidden;
  }

  clear() {
    this.input.value = "";
    this.results.hidden = true;
  }

  focus() {
    this.input.focus();
  }

  #soon() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.#search(this.input.value.trim()), PAUSE);
  }

  async #search(words) {
    if (!words) return this.clear();
    const { messages } = await get(
      `/api/targets/${this.page.target}/messages?${new URLSearchParams({ search: words, limit: 50 })}`,
    );
    if (words !== this.input.value.trim()) return;
    this.results.hidden = false;
    const said = messages.length ? say("found", { n: messages.length }) : say("foundNone");
    replace(
      this.results,
      h("p", { role: "status" }, said),
      h(
        "ul",
        {},
        messages.map((message) => this.#hit(message, words)),
      ),
    );
  }

  #hit(message, words) {
    const go = () => {
      this.clear();
      this.page.open(message.target, message.targetSeq);
    };
    const at = Math.max(0, message.body.toLowerCase().indexOf(words.toLowerCase()));
    const [from, to] = [Math.max(0, at - AROUND), at + words.length];
    const piece = [
      message.body.slice(from, at),
      h("mark", {}, message.body.slice(at, to)),
      message.body.slice(to, to + AROUND),
    ];
    return h(
      "li",
      {},
      h(
        "button",
        { type: "button", onclick: go },
        h("small", {}, `${message.author.name} · ${clock(message.createdAt)}`),
        h("span", {}, piece),
      ),
    );
  }
}
