// Scrolling to a part of the page.

const LONGEST = 3000; // milliseconds that a smooth scroll takes at most

let timer = 0;

function skipFiguresAgain() {
  clearTimeout(timer);
  document.documentElement.removeAttribute("data-every-height");
}

/**
 * Scroll to an element. The browser skips figures out of sight and guesses the height of those that it has never laid
 * out, which would make a smooth scroll end at the wrong place. So it lays out all of them until the scroll ends.
 */
export function scrollTo(element) {
  if (!element) return;
  document.documentElement.setAttribute("data-every-height", "");
  element.scrollIntoView();
  clearTimeout(timer);
  timer = setTimeout(skipFiguresAgain, LONGEST); // where nothing had to be scrolled, nothing ends
  addEventListener("scrollend", skipFiguresAgain, { once: true });
}
