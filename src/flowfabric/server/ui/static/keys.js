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

// A list leaves its rows behind, so that from one of them the next can be reached.
function beside(step) {
  const list = JSON.parse(sessionStorage.getItem("ff-list") || "[]");
  const at = list.findIndex((each) => each.split("?")[0] === location.pathname);
  if (at >= 0 && list[at + step]) location.href = list[at + step];
  else if (at < 0) click(step > 0 ? "[rel=next]" : "[rel=first]");
}

const click = (selector) => document.querySelector(selector)?.click();

const KEYS = {
  "/": () => (document.getElementById("q") || document.getElementById("search"))?.focus(),
  "?": () => document.getElementById("help").togglePopover(),
  j: () => move(1),
  k: () => move(-1),
  Enter: () => {
    const row = current();
    if (row && document.activeElement.closest("tr") !== row) location.href = row.dataset.open || row.querySelector("a").href;
    return Boolean(row);
  },
  x: () => current()?.querySelector("input[type=checkbox]")?.click(),
  X: () => current()?.dispatchEvent(new CustomEvent("select-to", {bubbles: true})),
  a: () => click("[data-key=a]"),
  ".": () => document.querySelector(".actions .btn")?.focus(),
  p: () => click("#live"),
  t: () => click("#theme"),
  y: () => {
    const id = current()?.dataset.id || current()?.id || document.querySelector("[data-page-id]")?.dataset.pageId;
    if (id) copy(id);
  },
  "[": () => beside(-1),
  "]": () => beside(1),
};

export function keys() {
  const list = rows().map((row) => row.dataset.open || row.querySelector("a").getAttribute("href"));
  if (list.length) sessionStorage.setItem("ff-list", JSON.stringify(list));
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
