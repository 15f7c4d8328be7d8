// Live parts: the server sends those that have changed, and they are replaced whole. What a person
// is in the middle of (a field, an open dialog) waits; focus, scrolling and open details stay.
import {now, setNow, times} from "./times.js";

const body = document.body;
const policy = window.trustedTypes
  ? trustedTypes.createPolicy("ff-fragment", {createHTML: (text) => text})
  : {createHTML: (text) => text};
const HIDDEN_MS = 30000;
const POLL_MS = 5000;
const STREAMS = 4; // a browser opens six connections to a server, and pages need some, too
const waiting = new Map();
let source, release, poll, hidden, state, paused = false, held = 0, since;

const find = (name) => document.querySelector(`[data-part="${name}"]`);
const all = () => [...document.querySelectorAll("[data-part]")];
const have = () => all().map((part) => `${part.dataset.part}:${part.dataset.v}`).join(",");
const place = (path) =>
  `${body.dataset.prefix}/ui/${path}?of=${encodeURIComponent(body.dataset.live)}&have=${have()}`;

function show(next) {
  if (next) state = next;
  const words = {live: "live", paused: "paused", away: "reconnecting", off: "offline", poll: "every 5 s"};
  const said = paused ? (held ? `paused (${held})` : "paused") : words[state];
  body.dataset.liveState = paused ? "paused" : {away: "reconnecting", off: "offline"}[state] || "live";
  const text = document.getElementById("live-text");
  if (text) text.textContent = said;
  document.getElementById("live")?.setAttribute("aria-label", `Live updates: ${said}`);
  const line = document.getElementById("offline");
  const isOff = state === "off" && !paused;
  if (line && isOff && line.hidden) line.textContent = `Offline: as of ${new Date(since || now()).toLocaleTimeString()}`;
  if (line) line.hidden = !isOff && !line.dataset.kept;
}

function isBusy(part) {
  const field = document.activeElement;
  if (part.contains(field) && field.matches("input:not([type=checkbox]),textarea,select")) return true;
  if (part.querySelector(":popover-open")) return true;
  return [...part.querySelectorAll("textarea,input:not([type=hidden]):not([type=checkbox])")]
    .some((each) => each.value !== each.defaultValue);
}

function keep(part) {
  const open = new Set([...part.querySelectorAll("details[id][open]")].map((each) => each.id));
  const shut = new Set([...part.querySelectorAll("details[id]:not([open])")].map((each) => each.id));
  const at = part.querySelector("tr.at")?.id;
  const ticked = new Set([...part.querySelectorAll("input[type=checkbox]:checked")].map((each) => each.value));
  const scrolls = [...part.querySelectorAll("[data-scroll]")].map((each) =>
    [each.dataset.scroll, each.scrollTop + each.clientHeight >= each.scrollHeight - 4 && each.dataset.follow !== undefined
      ? Infinity : each.scrollTop, each.scrollLeft]);
  const focus = part.contains(document.activeElement) ? document.activeElement : null;
  const owner = focus?.closest("[id]");
  const order = owner && [owner, ...owner.querySelectorAll("a,button,input,summary,[tabindex]")].indexOf(focus);
  return () => {
    for (const each of part.querySelectorAll("details[id]")) {
      if (open.has(each.id)) each.open = true;
      if (shut.has(each.id)) each.open = false;
    }
    if (at) document.getElementById(at)?.classList.add("at");
    for (const each of part.querySelectorAll("input[type=checkbox]")) {
      if (ticked.has(each.value)) each.checked = true;
    }
    for (const [name, top, left] of scrolls) {
      const each = part.querySelector(`[data-scroll="${name}"]`);
      if (each) each.scrollTop = top === Infinity ? each.scrollHeight : top, each.scrollLeft = left;
    }
    const again = owner && document.getElementById(owner.id);
    if (again) [again, ...again.querySelectorAll("a,button,input,summary,[tabindex]")][order]?.focus({preventScroll: true});
  };
}

// Whoever is about to decide is told that what the dialog is about has changed meanwhile.
function changed(part) {
  const box = part.querySelector(":popover-open");
  if (!box || box.querySelector(".changed")) return;
  const note = document.createElement("p");
  note.className = "changed wrong";
  note.setAttribute("role", "status");
  note.textContent = "This has changed since you opened it. Close this to see what it is now.";
  box.prepend(note);
}

function put({name, v, html}) {
  const part = find(name);
  if (!part || part.dataset.v === v) return;
  if (isBusy(part)) {
    waiting.set(name, {name, v, html});
    return changed(part);
  }
  waiting.delete(name);
  const restore = keep(part);
  part.innerHTML = policy.createHTML(html);
  part.dataset.v = v;
  restore();
  times(part);
  part.dispatchEvent(new CustomEvent("ff-part", {bubbles: true}));
}

function take({now: at, parts, seq}) {
  setNow(at);
  since = at;
  if (paused) {
    held += 1;
    for (const part of parts) waiting.set(part.name, part);
    return show();
  }
  if (parts.some((part) => part.html === undefined)) return void ask();
  for (const part of parts) put(part);
  body.dataset.liveSeq = Number(body.dataset.liveSeq) + 1;
  if (seq) body.dataset.liveVersion = seq;
}

function flush() {
  if (paused) return;
  for (const part of [...waiting.values()]) part.html === undefined ? ask() : put(part);
}

async function ask() {
  try {
    const reply = await fetch(place("parts"), {headers: {accept: "application/json"}});
    const told = await reply.json();
    if (!reply.ok) return trouble(told);
    take(told);
    untroubled();
    if (state !== "live") show(poll ? "poll" : state);
  } catch {
    show("off");
  }
}

function trouble({detail, code, advice}) {
  const line = document.getElementById("offline");
  line.textContent = `${detail || code}. ${advice || ""} Shown as of ${new Date(since || now()).toLocaleTimeString()}.`;
  line.dataset.kept = "";
  line.hidden = false;
  body.dataset.liveSeq = Number(body.dataset.liveSeq) + 1;
}

function untroubled() {
  const line = document.getElementById("offline");
  delete line.dataset.kept;
  show();
}

function stop() {
  source?.close();
  release?.();
  clearInterval(poll);
  source = release = poll = undefined;
}

function polling() {
  stop();
  poll = setInterval(ask, POLL_MS);
  show("poll");
  ask();
}

// At most a few streams a browser: others poll, and say so, instead of hanging.
async function mayStream() {
  if (!navigator.locks) return true;
  for (let n = 0; n < STREAMS; n += 1) {
    const got = await new Promise((told) => {
      navigator.locks.request(`ff-live-${n}`, {ifAvailable: true}, (lock) => {
        if (!lock) return void told(false);
        return new Promise((done) => { release = done; told(true); });
      });
    });
    if (got) return true;
  }
  return false;
}

async function start() {
  stop();
  if (!(await mayStream())) return polling();
  source = new EventSource(place("live"));
  // A proxy that buffers lets nothing through.
  let quiet = setTimeout(polling, 8000);
  source.onopen = () => { clearTimeout(quiet); show("live"); body.dataset.liveOpen = ""; };
  source.addEventListener("parts", (event) => { untroubled(); take(JSON.parse(event.data)); });
  source.addEventListener("trouble", (event) => trouble(JSON.parse(event.data)));
  source.addEventListener("problem", (event) => trouble(JSON.parse(event.data)));
  source.addEventListener("lagged", () => ask());
  source.onerror = () => {
    clearTimeout(quiet);
    show(navigator.onLine ? "away" : "off");
    if (source?.readyState !== EventSource.CLOSED) return;
    stop();
    quiet = setTimeout(start, 3000);
    show("off");
  };
}

export function live() {
  if (!body.dataset.live || !all().length) return;
  since = now();
  document.getElementById("live")?.addEventListener("click", () => {
    paused = !paused;
    if (!paused) { held = 0; flush(); }
    show();
  });
  for (const name of ["focusout", "toggle", "reset"]) {
    document.addEventListener(name, () => setTimeout(flush, 0), true);
  }
  document.addEventListener("visibilitychange", () => {
    clearTimeout(hidden);
    if (document.hidden) hidden = setTimeout(stop, HIDDEN_MS);
    else if (!source && !poll) start();
  });
  addEventListener("pagehide", stop);
  addEventListener("pageshow", (event) => event.persisted && start());
  addEventListener("online", start);
  start();
}
