// Ctrl K: jump to a page, or to whatever id or words are typed.
export function palette() {
  const prefix = document.body.dataset.prefix;
  const box = document.createElement("div");
  box.popover = "auto";
  box.className = "dialog palette";
  box.setAttribute("role", "dialog");
  box.setAttribute("aria-label", "Jump to");
  const form = document.createElement("form");
  form.action = `${prefix}/ui/search`;
  const field = document.createElement("input");
  field.name = "q";
  field.placeholder = "An id, words, or a page…";
  field.autocomplete = "off";
  field.setAttribute("aria-label", "Jump to");
  const list = document.createElement("ul");
  const places = [...document.querySelectorAll(".side a, .actions button, .actions a")];

  function show() {
    const wanted = field.value.trim().toLowerCase();
    const fit = places.filter((each) => each.textContent.toLowerCase().includes(wanted)).slice(0, 9);
    list.replaceChildren(...fit.map((place) => {
      const item = document.createElement("li");
      const button = document.createElement("button");
      button.type = "button";
      button.className = "btn quiet";
      button.textContent = place.textContent.trim();
      button.onclick = () => { box.hidePopover(); place.click(); };
      item.append(button);
      return item;
    }));
  }

  form.onsubmit = (event) => {
    const first = list.querySelector("button");
    if (field.value.trim() && (!first || /[:.{\d]/.test(field.value))) return;
    event.preventDefault();
    first?.click();
  };
  form.onkeydown = (event) => {
    const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (!step) return;
    event.preventDefault();
    const stops = [field, ...list.querySelectorAll("button")];
    stops[(stops.indexOf(document.activeElement) + step + stops.length) % stops.length].focus();
  };
  field.oninput = show;
  form.append(field, list);
  box.append(form);
  box.addEventListener("toggle", (event) => event.newState === "closed" && box.remove());
  document.body.append(box);
  show();
  box.showPopover();
  field.focus();
}
