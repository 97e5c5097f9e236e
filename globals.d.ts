// What tsc cannot know of the pages: the library that lies in vendor/, and which elements the ids and events belong to.

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

// getElementById gives an HTMLElement, whatever lies in the page under that id.
interface HTMLElement {
  accept: any;
  checked: any;
  disabled: any;
  files: any;
  href: any;
  value: any;
  requestSubmit: any;
}
