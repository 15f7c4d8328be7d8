// Completes the words of the filter bar.
export function filter() {
  const form = document.getElementById("filter");
  const field = form.querySelector("input");
  const known = (name) => (form.dataset[name] || "").split(" ").filter(Boolean);
  const list = document.createElement("ul");
  list.className = "suggest";
  list.id = "suggest";
  list.setAttribute("role", "listbox");
  list.hidden = true;
  form.append(list);
  for (const [name, value] of Object.entries({role: "combobox", "aria-controls": "suggest", "aria-expanded": "false", "aria-autocomplete": "list"})) {
    field.setAttribute(name, value);
  }
  let at = -1;

  const word = () => {
    const end = field.selectionStart;
    const begin = field.value.lastIndexOf(" ", end - 1) + 1;
    return [begin, end, field.value.slice(begin, end)];
  };

  function offered(text) {
    const [name, value] = text.split(":");
    if (value === undefined) return known("words").map((each) => `${each}:`);
    const values = {state: known("states"), kind: known("kinds"), lane: known("lanes"),
      since: ["10m", "1h", "24h", "7d"], until: ["10m", "1h", "24h", "7d"]}[name] || [];
    return values.map((each) => `${name}:${each}`);
  }

  function show() {
    const text = word()[2];
    const fit = text ? offered(text).filter((each) => each.startsWith(text) && each !== text).slice(0, 12) : [];
    at = -1;
    list.replaceChildren(...fit.map((each, index) => {
      const item = document.createElement("li");
      item.setAttribute("role", "option");
      item.id = `suggest-${index}`;
      item.textContent = each;
      item.onmousedown = (event) => { event.preventDefault(); take(each); };
      return item;
    }));
    list.hidden = !fit.length;
    field.setAttribute("aria-expanded", String(!list.hidden));
  }

  function take(text) {
    const [begin, end] = word();
    const space = text.endsWith(":") ? "" : " ";
    field.value = field.value.slice(0, begin) + text + space + field.value.slice(end).trimStart();
    field.selectionStart = field.selectionEnd = begin + text.length + space.length;
    show();
  }

  function mark(step) {
    const items = [...list.children];
    at = (at + step + items.length) % items.length;
    items.forEach((each, index) => each.setAttribute("aria-selected", String(index === at)));
    items[at].scrollIntoView({block: "nearest"});
    field.setAttribute("aria-activedescendant", items[at].id);
  }

  field.addEventListener("input", show);
  field.addEventListener("blur", () => { list.hidden = true; });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && list.hidden) field.blur();
    if (list.hidden) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") mark(event.key === "ArrowDown" ? 1 : -1);
    else if (event.key === "Escape") list.hidden = true;
    else if ((event.key === "Enter" && at >= 0) || (event.key === "Tab" && list.children.length)) take(list.children[Math.max(at, 0)].textContent);
    else return;
    event.preventDefault();
  });
}
