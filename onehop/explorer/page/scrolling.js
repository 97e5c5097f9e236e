// Scrolling to a part of the page.

const LONGEST = 3000; // milliseconds, the longest smooth scroll

let timer = 0;

function skipFiguresAgain() {
  clearTimeout(timer);
  document.documentElement.removeAttribute("data-every-height");
}

/**
 * Scroll to an element. The browser only estimates the heights of hidden figures, so a smooth scroll would end at the
 * wrong position. All figures are laid out until the scroll ends.
 */
export function scrollTo(element) {
  if (!element) return;
  document.documentElement.setAttribute("data-every-height", "");
  element.scrollIntoView();
  clearTimeout(timer);
  timer = setTimeout(skipFiguresAgain, LONGEST); // without a scroll there is no scrollend event
  addEventListener("scrollend", skipFiguresAgain, { once: true });
}
