// Tooltips. An element with a `tip` property, a text or a function of the event, has one.

const box = document.createElement("div");
box.className = "tip";
box.setAttribute("role", "tooltip");
box.hidden = true;

/** The text of the innermost element with a tip, or nothing. */
function textAt(event) {
  for (let element = event.target; element; element = element.parentElement) {
    if (element.tip === undefined) continue;
    return typeof element.tip === "function" ? element.tip(event) : element.tip;
  }
  return null;
}

let shownFor = null; // the element under the mouse, which a click may remove

function show(event) {
  shownFor = event.target;
  const text = textAt(event);
  box.hidden = !text;
  if (!text) return;
  if (box.textContent !== text) box.textContent = text;
  const { offsetWidth: width, offsetHeight: height } = box;
  const left = Math.max(6, Math.min(event.clientX + 14, innerWidth - width - 6));
  const below = event.clientY + 18;
  const top = below + height + 6 > innerHeight ? event.clientY - height - 12 : below;
  box.style.transform = `translate(${left}px, ${top}px)`;
}

/** An event's position in an element, as shares of its width and height. */
export function relativePosition(event, element) {
  const { left, top, width, height } = element.getBoundingClientRect();
  return [(event.clientX - left) / width, (event.clientY - top) / height];
}

export function watchTips() {
  document.body.append(box);
  document.addEventListener("pointermove", show, { passive: true });
  document.addEventListener("pointerdown", show, { passive: true });
  for (const end of ["scroll", "keydown"])
    addEventListener(end, () => (box.hidden = true), { passive: true });
  document.addEventListener("click", () =>
    requestAnimationFrame(() => (box.hidden ||= !shownFor?.isConnected)),
  );
  document.addEventListener("pointerleave", () => (box.hidden = true));
}
