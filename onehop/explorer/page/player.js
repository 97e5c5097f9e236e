// Step-by-step animations of figures. They play only if the reader has not asked for reduced motion.

import { html, nothing } from "onehop/vendor/lit-html.js";
import { store } from "onehop/session.js";
import { TEXTS } from "onehop/texts.js";

const T = TEXTS.player;
const PACE = 650; // milliseconds a frame
const still = window.matchMedia("(prefers-reduced-motion: reduce)");
let playing = null;

/** The current frame, from 0 to `frames`. The last one shows the whole figure and is the default. */
export function frameOf(view, id, frames) {
  const frame = Number.parseInt(view.dial(`${id}.frame`, frames), 10);
  return Number.isNaN(frame) ? frames : Math.max(0, Math.min(frame, frames));
}

/** Stop, and redraw the figure's buttons. */
export function stopPlaying() {
  if (!playing) return;
  const { id, timer } = playing;
  clearInterval(timer);
  playing = null;
  store.set({}, [id]);
}

const go = (view, id, frame, frames) =>
  view.setDial(`${id}.frame`, Math.max(0, Math.min(frame, frames)));

function play(view, id, frames) {
  stopPlaying();
  let frame = frameOf(view, id, frames);
  if (frame >= frames) frame = 0;
  const step = () => {
    if (frame > frames || !document.getElementById(`figure-${id}`)) return stopPlaying();
    if (frame === frames) stopPlaying();
    go(view, id, frame++, frames);
  };
  playing = { id, timer: setInterval(step, PACE) };
  step();
}

/** The buttons and keys of a figure's frames. `status` describes the current frame. */
export function player(view, { id, frames, label, status = nothing }) {
  const frame = frameOf(view, id, frames);
  const on = playing?.id === id;
  const step = (by) => {
    stopPlaying();
    go(view, id, by > 0 && frame >= frames ? 0 : frame + by, frames);
  };
  const toggle = () => {
    if (on) stopPlaying();
    else if (still.matches) step(1);
    else play(view, id, frames);
  };
  const keys = (event) => {
    const act = { ArrowRight: () => step(1), ArrowLeft: () => step(-1), " ": toggle }[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  };
  return html`<div
    class="player"
    data-player=${id}
    data-frame=${frame}
    data-frames=${frames}
    role="group"
    aria-label=${label}
    @keydown=${keys}
  >
    ${
      still.matches
        ? nothing
        : html`<button type="button" data-play aria-pressed=${on} @click=${toggle}>
            ${on ? T.stop : T.play}
          </button>`
    }
    <button type="button" data-step="-1" ?disabled=${frame === 0} @click=${() => step(-1)}>
      ${T.back}
    </button>
    <button type="button" data-step="1" @click=${() => step(1)}>
      ${frame >= frames ? T.again : T.next}
    </button>
    <span class="numbers">${frame} / ${frames}</span>
    <span class="status">${frame < frames ? status : label}</span>
  </div>`;
}

/** Play or step the figure of the current tour stop. */
export const playFigure = (id) =>
  document.querySelector(`#figure-${id} [data-play], #figure-${id} [data-step="1"]`)?.click();
