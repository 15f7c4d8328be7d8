// Zoom and pan of a drawing. Everything hangs on the document, so a drawing that is replaced needs no
// second start. Without this the links zoom, and the box scrolls.
const STEPS = [25, 50, 75, 100, 125, 150, 200];
const box = () => document.getElementById("drawing");
const drawing = () => document.getElementById("graph");
let held = null;

function percent() {
  const all = drawing();
  return Math.round((100 * all.getBoundingClientRect().width) / all.dataset.width);
}

const chosen = () => {
  const text = new URL(location.href).searchParams.get("zoom");
  return text === "fit" ? 0 : Number(text) || 100;
};

// The address and every link on the page say it, too.
function note(zoom) {
  const put = (address) => {
    const at = new URL(address, location.href);
    if (zoom === 100) at.searchParams.delete("zoom");
    else at.searchParams.set("zoom", zoom || "fit");
    return at.pathname + at.search + at.hash;
  };
  history.replaceState(history.state, "", put(location.href));
  for (const link of document.querySelectorAll(`a[href^="${location.pathname}"]:not([data-zoom])`)) {
    link.setAttribute("href", put(link.getAttribute("href")));
  }
}

function resize(zoom, x, y) {
  const all = drawing(), room = box();
  const was = percent() / 100, rect = room.getBoundingClientRect();
  const px = x === undefined ? rect.width / 2 : x - rect.left;
  const py = y === undefined ? rect.height / 2 : y - rect.top;
  const atX = (room.scrollLeft + px) / was, atY = (room.scrollTop + py) / was;
  if (zoom) {
    all.setAttribute("width", (all.dataset.width * zoom) / 100);
    all.setAttribute("height", (all.dataset.height * zoom) / 100);
  } else {
    all.setAttribute("width", "100%");
    all.removeAttribute("height");
  }
  const is = percent() / 100;
  room.scrollTo(atX * is - px, atY * is - py);
  note(zoom);
}

function step(way, x, y) {
  const now = percent();
  const next = way > 0 ? STEPS.find((each) => each > now) : STEPS.findLast((each) => each < now);
  if (next) resize(next, x, y);
}

const ACTS = {"+": () => step(1), "=": () => step(1), "-": () => step(-1), "−": () => step(-1), "0": () => resize(100), fit: () => resize(0)};

document.addEventListener("click", (event) => {
  const link = event.target.closest("[data-zoom]");
  if (link && drawing() && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    ACTS[link.dataset.zoom]();
  } else if (held?.moved) {
    event.preventDefault();
  }
  held = null;
}, true);

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !event.target.closest("#drawing")) return;
  if (event.key in ACTS) {
    event.preventDefault();
    event.stopPropagation();
    ACTS[event.key]();
  }
});

document.addEventListener("wheel", (event) => {
  if (!event.ctrlKey || !event.target.closest("#drawing")) return;
  event.preventDefault();
  step(-event.deltaY, event.clientX, event.clientY);
}, {passive: false});

document.addEventListener("pointerdown", (event) => {
  held = null;
  const room = event.target.closest("#drawing");
  if (!room || event.button || event.pointerType === "touch") return;
  held = {x: event.clientX, y: event.clientY, left: room.scrollLeft, top: room.scrollTop, moved: false};
});

document.addEventListener("pointermove", (event) => {
  if (!held || !event.buttons) return;
  const dx = event.clientX - held.x, dy = event.clientY - held.y;
  held.moved ||= Math.abs(dx) + Math.abs(dy) > 5;
  if (held.moved) box().scrollTo(held.left - dx, held.top - dy);
});

document.addEventListener("dragstart", (event) => event.target.closest?.("#drawing") && event.preventDefault());

// A node that was chosen stays where it was seen.
const place = `drawing ${location.pathname} ${new URL(location.href).searchParams.get("tab")}`;

function show() {
  const room = box();
  if (!room) return;
  const was = JSON.parse(sessionStorage.getItem(place) || "null");
  if (was) room.scrollTo(was[0], was[1]);
  const at = room.querySelector(".g-at")?.getBoundingClientRect(), rect = room.getBoundingClientRect();
  if (!at || (at.left >= rect.left && at.right <= rect.right && at.top >= rect.top && at.bottom <= rect.bottom)) return;
  room.scrollBy(at.left - rect.left - (rect.width - at.width) / 2, at.top - rect.top - (rect.height - at.height) / 2);
}

show();
document.addEventListener("ff-part", () => {
  const all = drawing();
  const is = all && (all.getAttribute("width") === "100%" ? 0 : Math.round((100 * all.getAttribute("width")) / all.dataset.width));
  if (all && is !== chosen()) resize(chosen());
});
addEventListener("pagehide", () => {
  const room = box();
  if (room) sessionStorage.setItem(place, JSON.stringify([room.scrollLeft, room.scrollTop]));
});
