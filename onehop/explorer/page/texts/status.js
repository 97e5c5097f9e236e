// The texts of the status line.

const megabytes = (bytes) => (bytes / 1e6).toFixed(bytes < 1e7 ? 1 : 0);

export const STATUS = {
  loading: (loaded, total) =>
    `Fetching the model, once: ${megabytes(loaded)} of ${megabytes(total)} MB. Until it is here, the page shows a stored example.`,
  loadingName: "Fetching the model",
  translating: (pieces) => `Translating: ${pieces} pieces written`,
  translatingName: "Translating",
  stop: "Stop",
  cancelled: "Stopped.",
  stopped: "The model was not fetched, so the page shows one stored example.",
  notLoaded: "The model is not here. Fetch it at the foot of the page.",
  again: "Fetch the model",
  slow: "This browser has no WebAssembly SIMD: a sentence takes about ten times as long.",
  close: "Close",
  unable: "This browser cannot run the model: it needs WebAssembly and module workers.",
};
