// How far each conversation was read in this browser.

import { recall, remember } from "./remembered.js";

const key = (target) => `read.${target}`;

// A conversation that was never opened here counts as read when the page first saw it.
export function readUpTo(state, target) {
  const head = state.targets.get(target)?.head ?? 0;
  const known = recall(key(target));
  if (known === null) remember(key(target), head);
  return Math.min(known ?? head, head);
}

export function markRead(target, seq) {
  if (seq > (recall(key(target)) ?? 0)) remember(key(target), seq);
}

export function unreadOf(state, target) {
  return (state.targets.get(target)?.head ?? 0) - readUpTo(state, target);
}
