// Elements in one expression. Text is always set as text, never as markup.

export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) set(element, name, value);
  element.append(...children.flat().filter((child) => child != null && child !== false));
  return element;
}

function set(element, name, value) {
  if (value == null || value === false) return;
  if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "value") element.value = value;
  else element.setAttribute(name, value === true ? "" : value);
}

export function replace(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child != null && child !== false));
}

// Text for people who do not see the page: said once, by the one live region.
const region = h("div", { class: "unseen", "aria-live": "polite", role: "status" });

export function announce(text) {
  if (!region.isConnected) document.body.append(region);
  region.textContent = text;
}

// A dialog that is gone when it is closed; the focus goes back to where it was.
export function openDialog(label, ...children) {
  const dialog = h("dialog", { "aria-label": label }, ...children);
  dialog.addEventListener("close", () => dialog.remove());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
