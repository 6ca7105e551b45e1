// Times as people read them. They are shown, never compared.

import { language } from "./words.js";

const LOCALE = { en: "en-GB", zh: "zh-CN" };

export function clock(iso) {
  const date = new Date(iso);
  const today = date.toDateString() === new Date().toDateString();
  const day = today ? {} : { month: "short", day: "numeric" };
  return date.toLocaleString(LOCALE[language()], { ...day, hour: "2-digit", minute: "2-digit" });
}

export function exact(iso) {
  return new Date(iso).toLocaleString(LOCALE[language()], {
    dateStyle: "medium",
    timeStyle: "medium",
  });
}

export function span(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const minutes = Math.floor(whole / 60);
  if (minutes < 1) return `${whole} s`;
  if (minutes < 60) return `${minutes} min ${String(whole % 60).padStart(2, "0")} s`;
  return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

export const since = (iso) => span((Date.now() - new Date(iso)) / 1000);

export const between = (start, end) => span((new Date(end) - new Date(start)) / 1000);
