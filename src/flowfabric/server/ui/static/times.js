// Instants: the server writes UTC and how long ago; here they tick on, and turn local.
const STEPS = [["d", 864e5], ["h", 36e5], ["m", 6e4], ["s", 1e3]];
// By how much this clock is wrong: the server's time counts.
let skew = 0;
export const setNow = (at) => { skew = at - Date.now(); };
export const now = () => Date.now() + skew;

export function span(ms) {
  if (ms < 1e3) return `${Math.round(ms)}ms`;
  if (ms < 1e4) return `${(ms / 1e3).toFixed(1)}s`;
  const parts = [];
  for (const [unit, size] of STEPS) {
    const many = Math.floor(ms / size);
    ms -= many * size;
    if (many) parts.push(many + unit);
    else if (parts.length) break;
    if (parts.length === 2) break;
  }
  return parts.join(" ");
}

const two = (n, width = 2) => String(n).padStart(width, "0");
const day = (d) => `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}`;
const hour = (d) => `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;

function words(each, at) {
  const gone = now() - at;
  if ("since" in each.dataset) return span(Math.max(0, gone));
  if (Math.abs(gone) < 1e3) return "now";
  return gone > 0 ? `${span(gone)} ago` : `in ${span(-gone)}`;
}

function tick(root) {
  for (const each of root.querySelectorAll("time[data-ago],time[data-since]")) {
    const said = words(each, Date.parse(each.dateTime));
    if (each.textContent !== said) each.textContent = said;
  }
}

function local(root) {
  if (document.documentElement.dataset.zone === "utc") return;
  for (const each of root.querySelectorAll("time[datetime]:not([data-local])")) {
    const at = new Date(each.dateTime);
    each.dataset.local = "";
    if (isNaN(at)) continue;
    const milli = two(at.getMilliseconds(), 3);
    if ("clock" in each.dataset) each.textContent = `${hour(at)}.${milli}`;
    each.title = `${day(at)} ${hour(at)}.${milli} (${each.dateTime})`;
  }
}

export function times(root) {
  const said = Number(document.body.dataset.now);
  if (root === document && said) setNow(said);
  local(root);
  tick(root);
  if (root === document) setInterval(() => document.hidden || tick(document), 1000);
}
