// Keys: off inside fields, and all of it reachable without them.
import {copy} from "./copy.js";

const IN_FIELD = "input:not([type=checkbox]),textarea,select,[contenteditable]";
let goes = 0;

const rows = () => [...document.querySelectorAll(".rows tbody tr[data-open]")];
const current = () => document.querySelector(".rows tr.at");

function move(step) {
  const all = rows();
  if (!all.length) return;
  const was = all.indexOf(current());
  const is = all[Math.min(all.length - 1, Math.max(0, was < 0 ? 0 : was + step))];
  current()?.classList.remove("at");
  is.classList.add("at");
  is.querySelector("a")?.focus({preventScroll: true});
  is.scrollIntoView({block: "nearest"});
}

const click = (selector) => document.querySelector(selector)?.click();

const KEYS = {
  "/": () => (document.getElementById("q") || document.getElementById("search"))?.focus(),
  "?": () => document.getElementById("help").togglePopover(),
  j: () => move(1),
  k: () => move(-1),
  Enter: () => {
    const row = current();
    if (row && document.activeElement.closest("tr") !== row) location.href = row.dataset.open;
    return Boolean(row);
  },
  x: () => current()?.querySelector("input[type=checkbox]")?.click(),
  X: () => current()?.dispatchEvent(new CustomEvent("select-to", {bubbles: true})),
  a: () => click("[data-key=a]"),
  ".": () => document.querySelector(".actions .btn")?.focus(),
  p: () => click("#live"),
  t: () => click("#theme"),
  y: () => {
    const id = current()?.dataset.id || document.querySelector("[data-page-id]")?.dataset.pageId;
    if (id) copy(id);
  },
  "[": () => click("[rel=prev]"),
  "]": () => click("[rel=next]"),
};

export function keys() {
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") {
      event.preventDefault();
      import("./palette.js").then((it) => it.palette());
      return;
    }
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches(IN_FIELD)) return;
    if (event.key === "g") {
      goes = Date.now();
      return;
    }
    if (goes && Date.now() - goes < 1500) {
      goes = 0;
      return click(`[data-go="${CSS.escape(event.key)}"]`);
    }
    const act = KEYS[event.key];
    if (!act || document.querySelector(".dialog:popover-open")) return;
    if (event.key === "Enter" && !current()) return;
    if (event.key !== "Enter") event.preventDefault();
    act();
  });
}
