// Scrolling to a part of the page.

const REST = 1500; // milliseconds without a scroll event, after which a scroll has ended

let stop = () => {};

/**
 * Scroll to an element. The browser only estimates the heights of hidden figures, so a smooth scroll would end at the
 * wrong position. All figures are laid out until the scroll ends. The event scrollend does not tell, since an earlier
 * scroll may cause it.
 */
export function scrollTo(element) {
  if (!element) return;
  stop();
  document.documentElement.setAttribute("data-every-height", "");
  element.scrollIntoView();
  let timer = setTimeout(() => stop(), REST);
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(() => stop(), REST);
  };
  addEventListener("scroll", wait);
  stop = () => {
    clearTimeout(timer);
    removeEventListener("scroll", wait);
    document.documentElement.removeAttribute("data-every-height");
  };
}
