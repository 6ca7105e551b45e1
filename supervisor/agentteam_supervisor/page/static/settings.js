// How the page looks, and whether it may call.

import { announce, h, openDialog } from "./dom.js";
import { showKeys } from "./keyboard.js";
import { recall, remember } from "./remembered.js";
import { say, switchLanguage } from "./words.js";

const THEMES = { auto: "themeAuto", light: "themeLight", dark: "themeDark" };

export function applyTheme() {
  const theme = recall("theme", "auto");
  document.documentElement.classList.toggle("light", theme === "light");
  document.documentElement.classList.toggle("dark", theme === "dark");
}

export function openSettings() {
  const dialog = openDialog(
    say("settings"),
    h("h2", {}, say("settings")),
    themes(),
    notifications(),
    h(
      "p",
      { class: "buttons" },
      h(
        "button",
        {
          type: "button",
          onclick: () => {
            dialog.close();
            showKeys();
          },
        },
        say("keys"),
      ),
      h("button", { type: "button", onclick: switchLanguage }, say("languageSwitch")),
    ),
    h("form", { method: "dialog" }, h("button", {}, say("close"))),
  );
}

function themes() {
  const choose = (event) => {
    remember("theme", event.currentTarget.value);
    applyTheme();
  };
  const options = Object.entries(THEMES).map(([theme, word]) =>
    h("option", { value: theme, selected: recall("theme", "auto") === theme }, say(word)),
  );
  return h("label", {}, say("theme"), " ", h("select", { onchange: choose }, options));
}

function notifications() {
  const box = h("input", { type: "checkbox" });
  box.checked = Boolean(recall("notify"));
  box.addEventListener("change", async () => {
    const allowed =
      box.checked && (await globalThis.Notification?.requestPermission()) === "granted";
    if (box.checked && !allowed) announce(say("notifyRefused"));
    box.checked = allowed;
    remember("notify", allowed || null);
  });
  return h("label", {}, box, " ", say("notify"));
}
