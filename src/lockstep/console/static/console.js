"use strict";
// Live content, times as the viewer wants them, themes, copying, and keys. Pages work without it.
const root = document.documentElement;
const stored = (name, fallback) => { try { return localStorage.getItem(name) || fallback; } catch { return fallback; } };
const store = (name, value) => { try { localStorage.setItem(name, value); } catch { /* private mode */ } };
const find = (id) => document.getElementById(id);

// themes and times
const theme = stored("theme", "auto");
if (theme !== "auto") root.dataset.theme = theme;
function ago(ms) {
  const seconds = (Date.now() - ms) / 1000, size = Math.abs(seconds), word = seconds < 0 ? "from now" : "ago";
  for (const [length, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) if (size >= 2 * length) return `${Math.round(size / length)} ${unit} ${word}`;
  return `${size.toFixed(0)} s ${word}`;
}
function showTimes(within = document) {
  const choice = stored("time", "utc");
  for (const element of within.querySelectorAll("time[datetime]")) {
    const moment = new Date(element.dateTime), utc = moment.toISOString().replace("T", " ");
    const local = moment.toLocaleString(undefined, { hour12: false, timeZoneName: "short" });
    element.textContent = choice === "local" ? local : choice === "ago" ? ago(moment.getTime()) : utc;
    element.title = [utc, local, ago(moment.getTime())].join("\n");
  }
}
function showOrigin(within = document) { for (const element of within.querySelectorAll("[data-origin]")) element.textContent = location.origin; }

// what follows changes
let source = null, isPaused = false, lastHeard = Date.now(), failed = "", retrying = 0, retryMs = 1000, lastTried = 0;
function state(text, kind = "live") {
  const place = find("live");
  if (!place) return;
  place.dataset.state = kind;
  find("live-state").textContent = text;
}
function isBusy() { const at = document.activeElement; return at && find("content").contains(at) && /INPUT|TEXTAREA|SELECT/.test(at.tagName); }
function follow() {
  const path = document.body.dataset.live;
  clearTimeout(retrying);
  lastTried = Date.now();
  if (!path || isPaused || document.hidden) return;
  source = new EventSource(`/live?path=${encodeURIComponent(path + location.search)}`);
  source.addEventListener("content", (event) => {
    heard();
    if (isBusy() || String(getSelection())) return;
    find("content").innerHTML = JSON.parse(event.data);
    showTimes(find("content"));
  });
  source.addEventListener("same", heard);
  source.addEventListener("stale", (event) => { failed = JSON.parse(event.data); });
  source.addEventListener("ended", () => { source.close(); location.reload(); });
  source.onerror = () => {
    failed = failed || "the server does not answer";
    if (source && source.readyState === EventSource.CLOSED) retry(); // refused, as by a proxy: browsers do not try again
  };
}
function heard() { lastHeard = Date.now(); failed = ""; retryMs = 1000; }
// Connect again, sooner or later, at different moments for different viewers: the server that answers then is as good.
function retry() {
  unfollow();
  lastTried = Date.now();
  clearTimeout(retrying);
  retrying = setTimeout(follow, retryMs * (0.5 + Math.random()));
  retryMs = Math.min(2 * retryMs, 10000);
}
// forms whose result is shown while they are filled in: the page is asked for again, and one part of it replaced
let typing = 0;
async function showTyped(form) {
  const query = new URLSearchParams(new FormData(form)), place = form.dataset.asTyped;
  const page = await fetch(`${location.pathname}?${query}`, { headers: { Accept: "text/html" } });
  const part = new DOMParser().parseFromString(await page.text(), "text/html").getElementById(place);
  if (!part) return;
  find(place).replaceChildren(...part.childNodes);
  showTimes(find(place));
  history.replaceState(null, "", `${location.pathname}?${query}`);
}
document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-as-typed]");
  if (!form) return;
  clearTimeout(typing);
  typing = setTimeout(() => showTyped(form).catch(() => { /* the button still works */ }), 300);
});
function unfollow() { if (source) source.close(); source = null; }
function tell() {
  const seconds = Math.round((Date.now() - lastHeard) / 1000);
  // Nothing comes though the connection is there: the server hangs. Another one may answer.
  if (!isPaused && !document.hidden && document.body.dataset.live && seconds > 10 && Date.now() - lastTried > 10000) retry();
  if (isPaused) state(`paused, as of ${seconds} s ago`, "paused");
  else if (failed || seconds > 10) state(`stale: updated ${seconds} s ago. ${failed}`, "stale");
  else state(`live, updated ${seconds} s ago`);
}

// keys and clicks
function palette(open) {
  const dialog = find("palette");
  if (!open) return dialog.close();
  dialog.showModal(); find("palette-text").value = ""; choose(""); find("palette-text").focus();
}
function choose(text) {
  let first = null;
  for (const link of find("palette-list").querySelectorAll("a")) {
    const fits = link.textContent.toLowerCase().includes(text.toLowerCase());
    link.parentElement.hidden = !fits; link.classList.remove("chosen");
    if (fits && !first) { first = link; link.classList.add("chosen"); }
  }
  return first;
}
document.addEventListener("keydown", (event) => {
  const isTyping = /INPUT|TEXTAREA|SELECT/.test(document.activeElement.tagName);
  if (event.key === "k" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); palette(true); }
  else if (event.key === "/" && !isTyping && find("search")) { event.preventDefault(); find("search").focus(); }
});
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  try { await navigator.clipboard.writeText(find(button.dataset.copy).textContent); button.textContent = "Copied"; }
  catch { getSelection().selectAllChildren(find(button.dataset.copy)); }
});
function chosen(id, name, fallback, apply) {
  const select = find(id);
  if (!select) return;
  select.value = stored(name, fallback);
  select.addEventListener("change", () => { store(name, select.value); apply(select.value); });
}
document.addEventListener("DOMContentLoaded", () => {
  chosen("time-choice", "time", "utc", () => showTimes());
  chosen("theme-choice", "theme", "auto", (value) => { if (value === "auto") delete root.dataset.theme; else root.dataset.theme = value; });
  showTimes(); showOrigin(); follow();
  setInterval(() => { if (find("live")) tell(); if (stored("time", "utc") === "ago") showTimes(); }, 1000);
  find("palette-open").addEventListener("click", () => palette(true));
  find("palette-text").addEventListener("input", (event) => choose(event.target.value));
  find("palette-text").form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = find("palette-text").value.trim(), link = choose(text);
    location.href = link ? link.href : `/streams?q=${encodeURIComponent(text)}`;
  });
  const pause = find("live-pause");
  if (pause) pause.addEventListener("click", () => {
    isPaused = !isPaused; pause.textContent = isPaused ? "Go on" : "Pause"; pause.setAttribute("aria-pressed", String(isPaused));
    if (isPaused) unfollow(); else follow();
  });
  document.addEventListener("visibilitychange", () => { if (document.hidden) unfollow(); else if (!isPaused) { unfollow(); follow(); } });
});
