// A line at the foot of the page while the model is fetched or a long sentence is translated.

const SOON = 1000; // milliseconds: what is done sooner needs no word

let element = null;
let timer = null;
let latest = null;

const megabytes = (bytes) => Math.round(bytes / 1e6);

function line({ loaded, total, pieces }) {
  if (total)
    return `Fetching the model, once: ${megabytes(loaded)} of ${megabytes(total)} MB. It then runs in this browser.`;
  return `Translating: ${pieces} pieces written`;
}

function draw() {
  if (!element) {
    element = document.createElement("div");
    element.className = "model-status";
    element.append(document.createElement("progress"), document.createElement("span"));
    const button = Object.assign(document.createElement("button"), {
      type: "button",
      textContent: "Stop",
    });
    button.addEventListener("click", () => latest?.stop?.());
    element.append(button);
    element.setAttribute("role", "status");
    document.body.append(element);
  }
  const [progress, text, button] = element.children;
  text.textContent = line(latest);
  progress.setAttribute("aria-label", latest.total ? "Fetching the model" : "Translating");
  if (latest.total) Object.assign(progress, { max: latest.total, value: latest.loaded });
  else progress.removeAttribute("value");
  button.hidden = !latest.stop;
}

/** Say how far it has come; null when there is nothing to say. */
export function showStatus(state) {
  const waits = latest === null;
  latest = state;
  if (state === null) {
    clearTimeout(timer);
    timer = null;
    element?.remove();
    element = null;
  } else if (element || state.total) draw();
  else if (waits && timer === null) timer = setTimeout(draw, SOON);
}
