// The status line at the foot of the page: the progress of a download or translation, or an error.

const SOON = 1000; // milliseconds before the progress of a request is shown

let element = null;
let timer = null;
let latest = null;

function build() {
  element = document.createElement("div");
  element.className = "model-status";
  const button = Object.assign(document.createElement("button"), { type: "button" });
  button.addEventListener("click", () => latest?.button?.act());
  element.append(document.createElement("progress"), document.createElement("span"), button);
  document.body.append(element);
}

function draw() {
  if (!element) build();
  const [progress, text, button] = element.children;
  const role = latest.isError ? "alert" : "status";
  if (element.getAttribute("role") !== role) element.setAttribute("role", role);
  text.textContent = latest.text;
  progress.hidden = !latest.progress;
  if (latest.progress) {
    const { name, value, max } = latest.progress;
    progress.setAttribute("aria-label", name);
    if (max) Object.assign(progress, { max, value });
    else progress.removeAttribute("value");
  }
  button.hidden = !latest.button;
  if (latest.button) button.textContent = latest.button.label;
}

/**
 * Show `{ text, progress, button, isError, isLate }`; all but the text are optional, and null removes it. `isLate`
 * shows it only after a delay.
 */
export function showStatus(state) {
  latest = state;
  if (element && state) return draw();
  if (state?.isLate) {
    timer ??= setTimeout(() => latest && draw(), SOON);
    return;
  }
  clearTimeout(timer);
  timer = null;
  if (state) return draw();
  element?.remove();
  element = null;
}
