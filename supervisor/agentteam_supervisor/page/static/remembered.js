// What this browser remembers: drafts, what was read, and how the page looks.

const PREFIX = "agentteam.";

export function recall(name, otherwise = null) {
  try {
    const text = localStorage.getItem(PREFIX + name);
    return text === null ? otherwise : JSON.parse(text);
  } catch {
    return otherwise; // storage that is shut off or garbled is no reason to fail
  }
}

export function remember(name, value) {
  try {
    if (value === null || value === "") localStorage.removeItem(PREFIX + name);
    else localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {
    // Nothing is lost but the memory of it.
  }
}
