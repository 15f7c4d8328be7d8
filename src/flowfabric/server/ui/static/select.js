// Rows that are selected, and the bar that acts on them.
export function select() {
  const bar = document.getElementById("bulk");
  const every = document.getElementById("bulk-all");
  const boxes = () => [...document.querySelectorAll("input[name=id][form=bulk]")];

  function show() {
    const all = boxes();
    const some = all.filter((each) => each.checked);
    for (const each of all) each.closest("tr").classList.toggle("chosen", each.checked);
    bar.classList.toggle("has-some", some.length > 0 || every.checked);
    document.getElementById("bulk-count").textContent = every.checked ? "All" : `${some.length} selected`;
    const head = document.getElementById("pick-all");
    if (!head) return;
    head.checked = some.length > 0 && some.length === all.length;
    head.indeterminate = some.length > 0 && some.length < all.length;
  }

  document.addEventListener("change", (event) => {
    if (event.target.id === "pick-all") for (const each of boxes()) each.checked = event.target.checked;
    show();
  });
  document.addEventListener("select-to", (event) => {
    const all = boxes();
    const to = all.indexOf(event.target.querySelector("input[name=id]"));
    let from = to;
    while (from > 0 && !all[from].checked) from -= 1;
    for (const each of all.slice(from, to + 1)) each.checked = true;
    show();
  });
  document.addEventListener("ff-part", show);
  addEventListener("pageshow", show);
  show();
}
