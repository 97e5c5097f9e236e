// One colour per concept, everywhere. The values stand in style.css; a picture names the concept.

export const fill = (concept) => `var(--${concept})`;
export const ink = (concept) => `var(--${concept}-ink)`;

/** A concept's colour at a strength between 0 and 1, over whatever lies beneath. */
export const tint = (concept, strength) =>
  `color-mix(in srgb, var(--${concept}) ${(100 * Math.max(0, Math.min(1, strength))).toFixed(1)}%, transparent)`;

const pixels = new Map();

/** A matrix of strengths as a tiny picture of one pixel a cell: many of them cost less than thousands of shapes. */
export function pixelPicture(key, rows, [red, green, blue]) {
  const name = `${key}|${red},${green},${blue}`;
  if (!pixels.has(name)) pixels.set(name, painted(rows, red, green, blue));
  return pixels.get(name);
}

function painted(rows, red, green, blue) {
  const canvas = document.createElement("canvas");
  canvas.width = rows[0].length;
  canvas.height = rows.length;
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  rows.forEach((row, i) =>
    row.forEach((strength, j) =>
      image.data.set([red, green, blue, Math.round(255 * strength)], 4 * (i * row.length + j)),
    ),
  );
  context.putImageData(image, 0, 0);
  return canvas.toDataURL();
}

/** Forget painted pictures: another trace has come. */
export const forgetPictures = () => pixels.clear();

/** The red, green and blue that a concept has in the present theme. */
export function rgb(concept) {
  const probe = document.createElement("span");
  probe.style.color = `var(--${concept})`;
  document.body.append(probe);
  const found = getComputedStyle(probe)
    .color.match(/[\d.]+/g)
    .slice(0, 3)
    .map(Number);
  probe.remove();
  return found;
}
