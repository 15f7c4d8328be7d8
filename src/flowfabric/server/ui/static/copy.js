// Buttons that copy a text, and the line that says that something was done.
export function say(text, isRefusal = false) {
  const line = document.getElementById("line");
  const said = document.createElement("p");
  said.className = `flash ${isRefusal ? "refused" : "done"}`;
  const inner = document.createElement("span");
  inner.textContent = text;
  said.append(inner);
  line.replaceChildren(said);
}

export async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    say(`Copy it by hand: ${text}`, true);
    return;
  }
  if (!button) return say(`Copied ${text}`);
  button.classList.add("did");
  setTimeout(() => button.classList.remove("did"), 1200);
}

export function copying() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy]");
    if (button) copy(button.dataset.copy, button);
  });
}
