// One colour per concept, everywhere. The values are in style.css.

/** A concept's colour with an opacity between 0 and 1. */
export const tint = (concept, strength) =>
  `color-mix(in srgb, var(--${concept}) ${(100 * Math.max(0, Math.min(1, strength))).toFixed(1)}%, transparent)`;

const pixels = new Map();

/**
 * A matrix of opacities as a small image, one pixel a cell, which costs less than thousands of shapes. It is cached
 * by its key.
 */
export function cachedImage(key, strengths, rgb) {
  const name = `${key}|${rgb}`;
  if (!pixels.has(name)) pixels.set(name, painted(strengths(), rgb));
  return pixels.get(name);
}

function painted(rows, [red, green, blue]) {
  const canvas = document.createElement("canvas");
  canvas.width = rows[0].length;
  canvas.height = rows.length;
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  let at = 0;
  for (const row of rows) {
    for (const strength of row) {
      image.data[at++] = red;
      image.data[at++] = green;
      image.data[at++] = blue;
      image.data[at++] = Math.round(255 * strength);
    }
  }
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

export const clearImages = () => pixels.clear();

/** The red, green and blue of a concept in the current theme. */
export function rgb(concept) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${concept})`;
  document.body.append(probe);
  const components = getComputedStyle(probe)
    .color.match(/[\d.]+/g)
    .slice(0, 3)
    .map(Number);
  probe.remove();
  return components;
}
