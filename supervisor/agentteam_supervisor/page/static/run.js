// A run between the messages: what it is writing now, or how it ended.

import { h, replace } from "./dom.js";
import { between, exact } from "./times.js";
import { hasWord, language, say } from "./words.js";

export function startOf(run) {
  return firstTurn(run)?.startedAt ?? run.lines[0]?.at ?? null;
}

const firstTurn = (run) => run.turns.values().next().value;
const lastTurn = (run) => [...run.turns.values()].at(-1);

// Drawn again in the same element, so that what is open in it stays open.
export function drawRun(page, run, known) {
  const element = known ?? make(page, run);
  element.update(run);
  return element;
}

function make(page, run) {
  const parts = {
    head: h("span"),
    text: h("div", { class: "live", dir: "auto" }),
    lines: h("ol", { class: "lines" }),
    picture: h("p", { class: "picture" }),
  };
  const details = h("details", {}, h("summary", {}, parts.head), parts.lines, parts.picture);
  const element = h("li", { class: "run" }, details, parts.text);
  element.update = (current) => update(page, current, element, parts, details.open);
  details.addEventListener("toggle", () => {
    drawLines(parts.lines, run);
    if (details.open) drawPicture(parts.picture, run);
  });
  return element;
}

function update(page, run, element, parts, open) {
  const name = page.state.agents.get(run.agentId)?.name ?? run.agentId;
  const turn = lastTurn(run);
  const cut = run.over && run.lines.some((line) => line.kind === "interrupted");
  const aborted = cut || turn?.outcome === "aborted";
  element.classList.toggle("over", run.over);
  element.classList.toggle("cut", aborted);
  parts.head.textContent = [say("runOf", { agent: name }), ...facts(run, turn)].join(" · ");
  const text = run.text || turn?.draft || "";
  const stays = !run.over || aborted || turn?.draft;
  const label = run.over ? (aborted ? say("cut") : say("held")) : say("live", { agent: name });
  if (text && stays) showText(parts.text, text, label, aborted);
  else replace(parts.text);
  if (open) drawLines(parts.lines, run);
}

// Streaming text grows in its node: the rest of the page is not touched.
function showText(element, text, label, aborted) {
  if (!element.body) {
    element.body = document.createTextNode("");
    element.label = h("small");
  }
  element.body.data = text;
  element.label.textContent = label;
  const parts = aborted ? [element.body, element.label] : [element.label, element.body];
  if (element.firstChild !== parts[0]) replace(element, ...parts);
}

function facts(run, turn) {
  const start = startOf(run);
  if (!run.over)
    return [run.lines.findLast((line) => line.kind !== "progress")?.text ?? ""].filter(Boolean);
  const ended = turn?.endedAt ?? run.lines.at(-1)?.at;
  const found = [outcomeOf(run, turn)];
  if (start && ended) found.push(between(start, ended));
  const tokens = [...run.turns.values()].reduce(
    (total, each) => total + tokensOf(each.usage ?? {}),
    0,
  );
  if (tokens) found.push(say("tokens", { n: tokens.toLocaleString() }));
  return found.filter(Boolean);
}

// Who stopped it stands in the server's own line; an outcome alone is one word.
function outcomeOf(run, turn) {
  const line = run.lines.findLast((each) => each.kind === "run_ended")?.text ?? "";
  if (turn?.cause === "urgent") return say("cutForUrgent");
  if (turn?.outcome === "aborted" && line) return line;
  return turn?.outcome && hasWord(turn.outcome) ? say(turn.outcome) : line || turn?.outcome;
}

// Each runtime counts by its own names; what it read from a cache is in its input.
function tokensOf(usage) {
  const names = Object.keys(usage);
  const total = names.find((name) => /^total/i.test(name));
  if (total) return usage[total];
  const counted = names.filter((name) => /^(input|output)/i.test(name));
  return counted.reduce((sum, name) => sum + usage[name], 0);
}

// Of a run that is over: what happened in it, over time.
function drawPicture(place, run) {
  if (!run.over || place.firstChild) return;
  const source = `/page/agents/${run.agentId}/runs/${run.id}.svg?lang=${language()}`;
  place.append(
    h("img", { src: source, alt: say("timeline"), loading: "lazy", onerror: () => replace(place) }),
  );
}

function drawLines(list, run) {
  replace(
    list,
    run.lines.map((line) => {
      const detail = Object.entries(line.detail ?? {}).map(
        ([key, value]) => `${key}: ${typeof value === "object" ? JSON.stringify(value) : value}`,
      );
      const place = line.generation ? `${line.generation.join(".")}` : "";
      return h(
        "li",
        { title: exact(line.at) },
        h("span", {}, line.text),
        h("small", {}, [place, ...detail].filter(Boolean).join(" · ")),
      );
    }),
  );
}
