"use strict";
// Live content, times as the viewer wants them, themes, copying, the switcher and keys. Pages work without it.
const root = document.documentElement;
const stored = (name, fallback) => { try { return localStorage.getItem(name) || fallback; } catch { return fallback; } };
const store = (name, value) => { try { localStorage.setItem(name, value); } catch { /* private mode */ } };
const find = (id) => document.getElementById(id);

// themes: before the first paint
function showTheme(value) { if (value === "auto") delete root.dataset.theme; else root.dataset.theme = value; }
showTheme(stored("theme", "auto"));

// times
function ago(ms) {
  const seconds = (Date.now() - ms) / 1000, size = Math.abs(seconds);
  if (size < 1) return "just now";
  const [length, unit] = [[86400, "d"], [3600, "h"], [60, "min"]].find(([each]) => size >= 2 * each) || [1, "s"];
  const text = `${Math.floor(size / length)} ${unit}`;
  return seconds < 0 ? `in ${text}` : `${text} ago`;
}
function localText(moment) {
  const minutes = -moment.getTimezoneOffset(), pad = (number) => String(Math.floor(number)).padStart(2, "0");
  const text = new Date(moment.getTime() + minutes * 60000).toISOString().replace("T", " ").slice(0, -1);
  return `${text}${minutes < 0 ? "-" : "+"}${pad(Math.abs(minutes) / 60)}:${pad(Math.abs(minutes) % 60)}`;
}
function setText(element, text) { if (element.textContent !== text) element.textContent = text; }
function showTime(element, choice) {
  const moment = new Date(element.getAttribute("datetime")), utc = moment.toISOString().replace("T", " "), local = localText(moment);
  setText(element, choice === "local" ? local : choice === "ago" ? ago(moment.getTime()) : utc);
  element.title = `UTC: ${utc}\nlocal: ${local}\n${ago(moment.getTime())}`;
}
function showTick(element, choice) {
  const moment = new Date(Number(element.dataset.ms));
  setText(element, choice === "ago" ? ago(moment.getTime()) : (choice === "local" ? localText(moment) : moment.toISOString()).slice(11, 19));
}
function showTimes(within = document) {
  const choice = stored("time", "utc");
  for (const element of within.querySelectorAll("time[datetime]")) showTime(element, choice);
  for (const element of within.querySelectorAll("text[data-ms]")) showTick(element, choice);
}
function showOrigin(within = document) { for (const element of within.querySelectorAll("[data-origin]")) setText(element, location.origin); }

// What is new is put into the page node by node: what did not change stays, with its focus, its selected text, its
// scroll position, whether it is open, and what was typed into it.
function isSelected(node) { const selection = getSelection(); return !selection.isCollapsed && selection.containsNode(node, true); }
function keyOf(node) { return node.nodeType === 1 ? node.dataset.key || node.id : ""; }
function isAlike(old, fresh) { return old.nodeType === fresh.nodeType && old.nodeName === fresh.nodeName && keyOf(old) === keyOf(fresh); }
function takeAttributes(old, fresh) {
  for (const { name } of [...old.attributes]) {
    if (!fresh.hasAttribute(name) && name !== "open" && !(name === "title" && old.nodeName === "TIME")) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
}
function isTyped(field) {
  if (field === document.activeElement) return true;
  if (field.nodeName === "SELECT") return [...field.options].some((option) => option.selected !== option.defaultSelected);
  return field.type === "checkbox" ? field.checked !== field.defaultChecked : field.value !== field.defaultValue;
}
function merge(old, fresh) {
  if (old.nodeType !== 1) { if (old.data !== fresh.data && !isSelected(old)) old.data = fresh.data; return; }
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(old.nodeName) && isTyped(old)) return;
  if (old.nodeName === "TIME" && old.dateTime === fresh.getAttribute("datetime")) return;
  if (old.hasAttribute("data-origin")) return;
  takeAttributes(old, fresh);
  mergeChildren(old, fresh);
}
function mergeChildren(old, fresh) {
  const keyed = new Map([...old.children].filter(keyOf).map((child) => [keyOf(child), child]));
  let at = old.firstChild;
  for (const child of [...fresh.childNodes]) {
    const known = keyOf(child) ? keyed.get(keyOf(child)) : null;
    if (known && known.parentNode === old && isAlike(known, child)) {
      if (known === at) at = at.nextSibling; else old.insertBefore(known, at);
      merge(known, child);
    } else if (at && isAlike(at, child)) {
      const next = at.nextSibling;
      merge(at, child); at = next;
    } else old.insertBefore(child, at);
  }
  while (at) { const next = at.nextSibling; if (!isSelected(at) && !at.contains(document.activeElement)) at.remove(); at = next; }
}
function take(place, html) {
  const fresh = new DOMParser().parseFromString(html, "text/html");
  mergeChildren(place, fresh.body);
  showTimes(place); showOrigin(place);
}

// what follows changes
let source = null, isPaused = false, lastHeard = Date.now(), failed = "", retrying = 0, retryMs = 1000, lastTried = 0;
function state(text, kind) {
  const place = find("live");
  setText(find("live-state"), text);
  if (place.dataset.state === kind) return;
  if (place.dataset.state || kind !== "live") setText(find("live-said"), kind === "live" ? "The page is live." : text);
  place.dataset.state = kind;
}
function follow() {
  const path = document.body.dataset.live;
  clearTimeout(retrying);
  if (!path || isPaused || document.hidden || source) return;
  lastTried = Date.now();
  source = new EventSource(`/live?path=${encodeURIComponent(path + location.search)}`);
  source.addEventListener("content", (event) => { heard(); take(find("content"), JSON.parse(event.data)); find("live").dataset.heard = "yes"; tell(); });
  source.addEventListener("same", heard);
  source.addEventListener("stale", (event) => { failed = JSON.parse(event.data); });
  source.addEventListener("ended", () => { unfollow(); location.reload(); });
  source.onerror = () => {
    failed = failed || "The server does not answer.";
    if (source && source.readyState === EventSource.CLOSED) retry(); // refused, as by a proxy: browsers do not try again
  };
}
function heard() { lastHeard = Date.now(); failed = ""; retryMs = 1000; }
// Connect again, sooner or later, at different moments for different viewers: the server that answers then is as good.
function retry() {
  unfollow();
  lastTried = Date.now();
  retrying = setTimeout(follow, retryMs * (0.5 + Math.random()));
  retryMs = Math.min(2 * retryMs, 10000);
}
function unfollow() { clearTimeout(retrying); if (source) source.close(); source = null; }
function tell() {
  const seconds = Math.max(0, Math.round((Date.now() - lastHeard) / 1000)), note = find("stale-note");
  // Nothing comes though the connection is there: the server hangs. Another one may answer.
  if (!isPaused && !document.hidden && document.body.dataset.live && seconds > 10 && Date.now() - lastTried > 10000) retry();
  const isStale = !isPaused && (failed !== "" || seconds > 10);
  if (isPaused) state(`paused, as of ${seconds} s ago`, "paused");
  else if (isStale) state(`stale: updated ${seconds} s ago`, "stale");
  else state(`live, updated ${seconds} s ago`, "live");
  find("content").toggleAttribute("data-stale", isStale);
  note.hidden = !isStale;
  if (isStale) setText(note, `Stale. ${failed || "Nothing was heard from the server."} What follows is as of ${localText(new Date(lastHeard))}; this page tries again by itself.`);
}
function pause() {
  const button = find("live-pause");
  isPaused = !isPaused; failed = "";
  button.textContent = isPaused ? "Resume" : "Pause"; button.setAttribute("aria-pressed", String(isPaused));
  if (isPaused) unfollow(); else follow();
  tell();
}

// forms whose result is shown while they are filled in: the page is asked for again, and one part of it replaced
let typing = 0;
async function showTyped(form) {
  const query = new URLSearchParams(new FormData(form)), place = find(form.dataset.asTyped);
  const page = await fetch(`${location.pathname}?${query}`, { headers: { Accept: "text/html" } });
  const part = new DOMParser().parseFromString(await page.text(), "text/html").getElementById(place.id);
  if (!part) return;
  mergeChildren(place, part);
  showTimes(place);
  history.replaceState(null, "", `${location.pathname}?${query}`);
  unfollow(); follow();
}

// the switcher: pages at once, names of things as they are found
const KINDS = [
  ["streams", "stream", (row) => [row.name, `/streams/${encodeURIComponent(row.name)}`]],
  ["groups", "group", (row) => [row.name, `/groups/${encodeURIComponent(row.name)}`]],
  ["projects", "project", (row) => [row.name, `/projects/${encodeURIComponent(row.name)}`]],
  ["crons", "cron", (row) => [row.id, `/crons/${encodeURIComponent(row.tenant)}/${encodeURIComponent(row.id)}`]],
  ["fleet/hosts", "host", (row) => [row.name, `/fleet/hosts/${encodeURIComponent(row.name)}`]],
];
let looking = 0;
function palette() {
  const dialog = find("palette");
  if (dialog.open) return dialog.close();
  dialog.showModal(); find("palette-text").value = ""; forget(); choose("");
}
function options() { return [...find("palette-list").children].filter((item) => !item.hidden); }
function forget() { for (const item of find("palette-list").querySelectorAll("[data-found]")) item.remove(); }
function choose(text) {
  const wanted = text.trim().toLowerCase();
  for (const item of find("palette-list").children) item.hidden = !("found" in item.dataset) && !item.querySelector("a").textContent.toLowerCase().includes(wanted);
  select(options()[0]);
}
function select(item) {
  for (const each of find("palette-list").children) each.setAttribute("aria-selected", String(each === item));
  find("palette-text").setAttribute("aria-activedescendant", item ? item.id : "");
  if (item) item.scrollIntoView({ block: "nearest" });
}
function move(step) {
  const shown = options(), at = shown.findIndex((item) => item.getAttribute("aria-selected") === "true");
  if (shown.length) select(shown[(at + step + shown.length) % shown.length]);
}
async function lookFor(text) {
  const number = ++looking, wanted = text.trim();
  if (wanted.length < 2) return forget();
  const found = await Promise.all(KINDS.map(async ([path, kind, read]) => {
    const answer = await fetch(`/api/v1/${path}?size=5&q=${encodeURIComponent(wanted)}`).catch(() => null);
    const tree = answer && answer.ok ? await answer.json() : {};
    return (tree[path.split("/").pop()] || []).map((row) => [kind, ...read(row)]);
  }));
  if (number !== looking) return;
  forget();
  found.flat().forEach(([kind, name, href], index) => {
    const item = document.createElement("li"), link = document.createElement("a"), note = document.createElement("span");
    item.setAttribute("role", "option"); item.id = `found-${index}`; item.dataset.found = kind;
    link.href = href; link.textContent = name; link.tabIndex = -1; note.textContent = kind; note.className = "note";
    item.append(link, " ", note); find("palette-list").append(item);
  });
  if (!options().some((item) => item.getAttribute("aria-selected") === "true")) select(options()[0]);
}
function go() {
  const item = options().find((each) => each.getAttribute("aria-selected") === "true");
  location.href = item ? item.querySelector("a").href : `/streams?q=${encodeURIComponent(find("palette-text").value.trim())}`;
}

// copying
async function copy(button) {
  const place = button.previousElementSibling, said = button.textContent;
  try { await navigator.clipboard.writeText(place.textContent); button.textContent = "Copied"; setTimeout(() => { button.textContent = said; }, 2000); }
  catch { getSelection().selectAllChildren(place); }
}

// the menu of narrow windows
function menu(isOpen) {
  const place = find("menu");
  place.classList.toggle("open", isOpen);
  find("menu-open").setAttribute("aria-expanded", String(isOpen));
  const choices = document.querySelector(".choices");
  if (isOpen) { place.append(choices); find("menu-close").focus(); } else { document.querySelector("#palette-open").after(choices); find("menu-open").focus(); }
}

function isTyping() { return /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.nodeName); }
document.addEventListener("keydown", (event) => {
  if (event.key === "k" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); palette(); }
  else if (event.key === "/" && !isTyping() && !event.ctrlKey) { event.preventDefault(); if (find("search")) find("search").focus(); else palette(); }
  else if (event.key === "Escape" && find("menu").classList.contains("open")) menu(false);
  else if (event.key === "Escape" && document.activeElement.id === "search") document.activeElement.blur();
  else if (event.target.id === "palette-text" && (event.key === "ArrowDown" || event.key === "ArrowUp")) { event.preventDefault(); move(event.key === "ArrowDown" ? 1 : -1); }
});
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy]");
  if (button) copy(button);
  if (event.target.id === "palette") event.target.close();
});
document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-as-typed]");
  if (form) { clearTimeout(typing); typing = setTimeout(() => showTyped(form).catch(() => { /* the button still works */ }), 300); }
  if (event.target.id === "palette-text") { choose(event.target.value); clearTimeout(typing); typing = setTimeout(() => lookFor(event.target.value), 150); }
});
function choice(id, name, fallback, apply) {
  const field = find(id);
  field.value = stored(name, fallback);
  field.addEventListener("change", () => { store(name, field.value); apply(field.value); });
}
document.addEventListener("DOMContentLoaded", () => {
  choice("time-choice", "time", "utc", () => showTimes());
  choice("theme-choice", "theme", "auto", showTheme);
  showTimes(); showOrigin(); follow();
  setInterval(() => { if (find("live")) tell(); if (stored("time", "utc") === "ago") showTimes(); }, 1000);
  find("palette-open").addEventListener("click", palette);
  find("palette-text").form.addEventListener("submit", (event) => { event.preventDefault(); go(); });
  find("menu-open").addEventListener("click", (event) => { event.preventDefault(); menu(!find("menu").classList.contains("open")); });
  find("menu-close").addEventListener("click", (event) => { event.preventDefault(); menu(false); });
  if (find("live-pause")) find("live-pause").addEventListener("click", pause);
  document.addEventListener("visibilitychange", () => { if (document.hidden) unfollow(); else follow(); });
  addEventListener("pagehide", unfollow);
  addEventListener("pageshow", follow);
});
