// The one place where text becomes markup: what the server has rendered and cleaned.

const policy = globalThis.trustedTypes?.createPolicy("rendered", { createHTML: (text) => text });
const kept = new Map();

// The Markdown of a message, as nodes; a message never changes, so it is asked for once.
export async function rendered(messageId) {
  if (!kept.has(messageId)) kept.set(messageId, fetchRendered(messageId));
  const template = document.createElement("template");
  const html = await kept.get(messageId);
  template.innerHTML = policy ? policy.createHTML(html) : html;
  for (const link of template.content.querySelectorAll("a")) link.target = "_blank";
  return template.content;
}

async function fetchRendered(messageId) {
  const answer = await fetch(`/page/messages/${messageId}`);
  if (answer.ok) return answer.text();
  kept.delete(messageId);
  throw new Error(`the message cannot be shown: ${answer.status}`);
}
