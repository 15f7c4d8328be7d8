// Payloads: a click on a key copies its path, with Alt its value; a field finds in long ones.
import {copy} from "./copy.js";

const LONG = 40;

function find(tree) {
  const leaves = [...tree.querySelectorAll("[data-path]")];
  if (leaves.length < LONG) return;
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = "Find in it…";
  field.setAttribute("aria-label", "Find in the payload");
  field.oninput = () => {
    const wanted = field.value.toLowerCase();
    for (const each of leaves) {
      const hit = wanted && each.textContent.toLowerCase().includes(wanted);
      each.classList.toggle("js-hit", Boolean(hit) && each.tagName === "DIV");
      if (hit) for (let up = each.parentElement; up && up !== tree; up = up.parentElement) up.open = true;
    }
    tree.querySelector(".js-hit")?.scrollIntoView({block: "nearest"});
  };
  tree.before(field);
}

export function json() {
  for (const tree of document.querySelectorAll(".js-tree")) find(tree);
  document.addEventListener("click", (event) => {
    const key = event.target.closest(".js-key");
    if (!key) return;
    event.preventDefault();
    const at = key.closest("[data-path]");
    const value = at.lastElementChild;
    copy(event.altKey && value !== key ? value.textContent : at.dataset.path);
  });
}
