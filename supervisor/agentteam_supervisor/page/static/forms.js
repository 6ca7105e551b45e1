// Making agents and conversations.

import { get, post } from "./api.js";
import { h, openDialog } from "./dom.js";
import { say } from "./words.js";

const NAME = "[a-z0-9][a-z0-9_\\-]{0,62}";

export async function askNewAgent(page) {
  const { runtimes } = await get("/page/runtimes");
  const name = h("input", { name: "name", required: true, pattern: NAME, autocomplete: "off" });
  const runtime = h(
    "select",
    { name: "runtime" },
    runtimes.map((each) => h("option", { value: each }, each)),
  );
  const workdir = h("input", {
    name: "workdir",
    autocomplete: "off",
    placeholder: "~/src/project",
  });
  const model = h("input", { name: "model", autocomplete: "off" });
  ask(
    say("newAgent"),
    [
      [say("name"), name],
      [say("runtime"), runtime],
      [say("workdir"), workdir],
      [say("model"), model],
    ],
    async () => {
      const fields = { name: name.value, runtime: runtime.value };
      if (workdir.value) fields.workdir = workdir.value;
      if (model.value) fields.model = model.value;
      const agent = await post("/api/agents", fields);
      await page.load();
      page.open(agent.target.id);
    },
  );
}

export function askNewConversation(page) {
  const name = h("input", { name: "name", required: true, pattern: NAME, autocomplete: "off" });
  const agents = [...page.state.agents.values()];
  const boxes = agents.map((agent) => h("input", { type: "checkbox", value: agent.id }));
  const who = h(
    "fieldset",
    {},
    h("legend", {}, say("members")),
    agents.map((agent, at) => h("label", {}, boxes[at], " ", agent.name)),
  );
  ask(
    say("newConversation"),
    [
      [say("name"), name],
      [null, who],
    ],
    async () => {
      const members = boxes.filter((box) => box.checked).map((box) => box.value);
      const target = await post("/api/targets", { name: name.value, agents: members });
      page.state.addTarget(target);
      page.open(target.id);
    },
  );
}

function ask(title, fields, make) {
  const problem = h("p", { class: "problem", role: "alert" });
  const submit = async (event) => {
    event.preventDefault();
    problem.textContent = "";
    try {
      await make();
      dialog.close();
    } catch (error) {
      problem.textContent = error.message;
    }
  };
  const rows = fields.map(([label, field]) =>
    label ? h("label", {}, h("span", {}, label), field) : field,
  );
  const form = h(
    "form",
    { class: "ask", onsubmit: submit },
    h("h2", {}, title),
    rows,
    problem,
    h(
      "p",
      { class: "buttons" },
      h("button", { type: "button", onclick: () => dialog.close() }, say("cancel")),
      h("button", { type: "submit", class: "send" }, say("create")),
    ),
  );
  const dialog = openDialog(title, form);
}
