// A line at the foot of the page: how far the model or a translation has come, or what went wrong.

const SOON = 1000; // milliseconds: what is done sooner needs no word

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
  const role = latest.isTrouble ? "alert" : "status";
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
 * Show `{ text, progress, button, isTrouble, isLate }`, of which only the text must be there; null when there is nothing to
 * say. What `isLate` is shown only if it takes longer than a moment.
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
