// The entry point: connects the stores with the drawing and starts the first translation.

import { drawPreviewSoon, drawRest, drawSoon, showTheme, snippetOf } from "onehop/drawing.js";
import { scrollTo } from "onehop/scrolling.js";
import { followAddress, pointer, preview, reload, store } from "onehop/session.js";
import { watchTips } from "onehop/tips.js";
import { goTo, watchTour } from "onehop/tour.js";
import { currentView, narrow } from "onehop/view.js";
import { forgetFailures, startSweep } from "onehop/requests.js";

let wasBusy = false;
store.listen(({ busy }, scope) => {
  if (busy && !wasBusy) forgetFailures();
  wasBusy = busy;
  drawSoon(scope);
});
pointer.listen(drawPreviewSoon);
watchTips();
watchTour();
narrow.addEventListener("change", () => drawSoon());
window.addEventListener("hashchange", followAddress);
window.addEventListener("beforeprint", () => drawRest(Infinity));
window.addEventListener("keydown", (event) => {
  if (event.key === "Escape") preview(null);
});
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-begin-tour]")) return goTo(0);
  const link = event.target.closest("[data-jump]");
  if (!link) return;
  event.preventDefault();
  if (link.dataset.jump === "figure-decides") startSweep();
  scrollTo(document.getElementById(link.dataset.jump));
});
window.onehop = { snippet: snippetOf, view: currentView };

showTheme();
reload();
