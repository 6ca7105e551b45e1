// Bottom: writing. What is sent from here never carries a policy.

import { post } from "./api.js";
import { h } from "./dom.js";
import { recall, remember } from "./remembered.js";
import { say } from "./words.js";

const HIGHEST = 240; // pixels

export class Composer {
  constructor(page) {
    this.page = page;
    this.text = h("textarea", {
      rows: 1,
      oninput: () => this.#changed(),
      onkeydown: (event) => this.#key(event),
    });
    this.button = h("button", { type: "submit", class: "send" }, say("send"));
    this.hint = h("p", { class: "hint", id: "composer-hint" }, say("writeHint"));
    this.problem = h("p", { class: "problem", role: "alert" });
    this.text.setAttribute("aria-describedby", "composer-hint");
    this.element = h(
      "form",
      { class: "composer", onsubmit: (event) => this.#send(event) },
      h("div", { class: "writing" }, this.text, this.button),
      this.hint,
      this.problem,
    );
  }

  open(target) {
    this.target = target;
    this.key = null;
    this.element.hidden = !target;
    if (!target) return;
    const label = say("write", { target: this.page.state.targets.get(target).name });
    this.text.placeholder = label;
    this.text.setAttribute("aria-label", label);
    this.text.value = recall(`draft.${target}`, "");
    this.problem.textContent = "";
    this.#fit();
  }

  #changed() {
    this.key = null;
    remember(`draft.${this.target}`, this.text.value);
    this.#fit();
  }

  #fit() {
    this.text.style.height = "auto";
    this.text.style.height = `${Math.min(this.text.scrollHeight, HIGHEST)}px`;
    this.button.disabled = !this.text.value.trim();
  }

  #key(event) {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.element.requestSubmit();
  }

  // A text that could not be sent stays, and is sent again under the same key.
  async #send(event) {
    event.preventDefault();
    const [target, body] = [this.target, this.text.value];
    if (!body.trim() || this.sending) return;
    this.key ??= crypto.randomUUID();
    this.sending = true;
    this.problem.textContent = "";
    try {
      const message = await post(`/api/targets/${target}/messages`, { body }, this.key);
      remember(`draft.${target}`, null);
      if (this.target === target && this.text.value === body) this.text.value = "";
      this.key = null;
      this.page.state.addMessage(message);
    } catch (error) {
      this.problem.textContent = say("notSent", { problem: error.message });
    } finally {
      this.sending = false;
      this.#fit();
    }
  }

  focus() {
    this.text.focus();
  }
}
