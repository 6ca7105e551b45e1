// The server's events, without loss or doubling over any number of lost connections.

import { language } from "./words.js";

const KINDS = ["message", "delivery", "agent", "activity", "approval", "gap"];
const AGAIN = [500, 1000, 2000, 4000, 8000];

// take(kind, data); connected(true | false); both are told as it happens.
export function follow(take, connected) {
  let last = null;
  let failures = 0;
  let source;

  function open() {
    const query = new URLSearchParams({ lang: language() });
    if (last !== null) query.set("lastEventId", last);
    source = new EventSource(`/api/events?${query}`);
    source.onopen = () => {
      failures = 0;
      connected(true);
      // Without a position nobody knows what was missed: all is read anew.
      if (last === null) take("gap", {});
    };
    source.onerror = () => {
      connected(false);
      // The browser's own attempts keep no position of ours and give up on a refusal.
      source.close();
      setTimeout(open, AGAIN[Math.min(failures++, AGAIN.length - 1)]);
    };
    for (const kind of KINDS) {
      source.addEventListener(kind, (event) => {
        if (event.lastEventId) last = event.lastEventId;
        take(kind, JSON.parse(event.data));
      });
    }
  }
  open();
  return {
    again() {
      source.close();
      open();
    },
  };
}
