// Calls of the HTTP API. A refusal is thrown in the server's own words.

import { language } from "./words.js";

export class Refused extends Error {
  constructor(status, problem) {
    super(problem.detail ?? `HTTP ${status}`);
    this.status = status;
    this.type = problem.type ?? "";
  }
}

async function call(method, path, body, key) {
  const headers = { "Accept-Language": language() };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key) headers["Idempotency-Key"] = key;
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  const text = await answer.text();
  const value = text ? JSON.parse(text) : null;
  if (!answer.ok) throw new Refused(answer.status, value ?? {});
  return value;
}

export const get = (path) => call("GET", path);

// The key makes a repeated call one call: an answer that was lost costs nothing.
export const post = (path, body, key = crypto.randomUUID()) => call("POST", path, body, key);

export async function everything(path, name) {
  const found = [];
  for (let after = 0; ;) {
    const page = (await get(`${path}?after=${after}&limit=1000`))[name];
    found.push(...page);
    if (page.length < 1000) return found;
    after = page.at(-1).seq;
  }
}
