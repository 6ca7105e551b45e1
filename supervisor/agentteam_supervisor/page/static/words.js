// Everything the page says, in both languages. Lines of a run come from the server.

import { chinese } from "./chinese.js";
import { english } from "./english.js";
import { recall, remember } from "./remembered.js";

const TABLES = { en: english, zh: chinese };

export function language() {
  const chosen = recall("language");
  if (chosen in TABLES) return chosen;
  const preferred = navigator.languages.map((tag) => tag.split("-")[0]);
  return preferred.find((tag) => tag in TABLES) ?? "en";
}

export function switchLanguage() {
  remember("language", language() === "en" ? "zh" : "en");
  location.reload();
}

export function say(name, values = {}) {
  const text = TABLES[language()][name] ?? english[name] ?? name;
  return text.replace(/\{(\w+)\}/g, (_, key) => values[key] ?? "");
}

export const hasWord = (name) => name in english;
