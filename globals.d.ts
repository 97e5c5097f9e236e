// Types that tsc cannot infer: the vendored library, and the elements behind ids and events.

declare module "onehop/vendor/lit-html.js" {
  export const html: any, svg: any, mathml: any, nothing: any, render: any;
}

interface Window {
  onehop: any;
}

interface EventTarget {
  closest: Element["closest"];
}

interface Element {
  dataset: DOMStringMap;
  click(): void;
  focus(options?: FocusOptions): void;
}

interface Event {
  dataTransfer?: DataTransfer;
}

// getElementById returns an HTMLElement, whatever element has that id.
interface HTMLElement {
  accept: any;
  checked: any;
  disabled: any;
  files: any;
  href: any;
  value: any;
  requestSubmit: any;
}
