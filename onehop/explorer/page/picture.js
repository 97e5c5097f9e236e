// A figure as a picture: the DOM is converted to an SVG of rectangles, words and shapes; a PNG is a rendering of it.

const DRAWN = [
  ...["fill", "fill-opacity", "stroke", "stroke-opacity", "stroke-width", "stroke-dasharray"],
  ...["stroke-linejoin", "opacity", "text-anchor", "font-size", "font-weight", "font-style"],
];
const NAMESPACE = "http://www.w3.org/2000/svg";
const brush = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
brush.canvas.width = brush.canvas.height = 1;
const colours = new Map();

/** A CSS colour as rgb(), which every program knows, and its opacity. */
function rgbOf(colour) {
  if (!colours.has(colour)) {
    brush.clearRect(0, 0, 1, 1);
    brush.fillStyle = colour;
    brush.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = brush.getImageData(0, 0, 1, 1).data;
    colours.set(colour, { rgb: `rgb(${r},${g},${b})`, opacity: Number((a / 255).toFixed(3)) });
  }
  return colours.get(colour);
}

const escaped = (text) =>
  text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]);
const svgElement = (name, attributes, inside = "") =>
  `<${name}${Object.entries(attributes)
    .map(([key, value]) => ` ${key}="${escaped(String(value))}"`)
    .join("")}>${inside}</${name}>`;
const round = (x) => Number(x.toFixed(2));

/** A colour as attributes of a fill or a stroke. */
const paint = (kind, colour) => {
  const { rgb, opacity } = rgbOf(colour);
  return { [kind]: rgb, ...(opacity < 1 && { [`${kind}-opacity`]: opacity }) };
};

/** The element's own background and border. */
function box(element, style, at) {
  const { left, top, width, height } = at(element.getBoundingClientRect());
  if (!width || !height) return "";
  const filled = rgbOf(style.backgroundColor).opacity > 0;
  const sides = ["Top", "Right", "Bottom", "Left"].map(
    (side) => style[`border${side}Style`] !== "none" && parseFloat(style[`border${side}Width`]),
  );
  const rx = parseFloat(style.borderTopLeftRadius) || 0;
  const bounds = { x: left, y: top, width, height, rx: round(Math.min(rx, height / 2)) };
  const opacity = style.opacity === "1" ? {} : { opacity: style.opacity };
  let out = filled
    ? svgElement("rect", { ...bounds, ...paint("fill", style.backgroundColor), ...opacity })
    : "";
  if (sides.every(Boolean))
    out += svgElement("rect", {
      ...bounds,
      fill: "none",
      "stroke-width": sides[0],
      ...paint("stroke", style.borderTopColor),
    });
  else if (sides[2])
    out += svgElement("line", {
      ...{ x1: left, x2: round(left + width), y1: round(top + height), y2: round(top + height) },
      "stroke-width": sides[2],
      ...paint("stroke", style.borderBottomColor),
    });
  return out;
}

/** One word at a time, so that lines break as on the screen. */
function words(node, style, at) {
  const size = parseFloat(style.fontSize);
  brush.font = `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  const range = document.createRange();
  return [...node.textContent.matchAll(/\S+/g)]
    .map(({ 0: word, index }) => {
      range.setStart(node, index);
      range.setEnd(node, index + word.length);
      const rect = range.getBoundingClientRect();
      if (!rect.width) return "";
      const { fontBoundingBoxAscent: up, fontBoundingBoxDescent: down } = brush.measureText(word);
      const { left, top, width } = at(rect);
      const attributes = {
        x: left,
        y: round(top + (rect.height - up - down) / 2 + up),
        "font-family": style.fontFamily,
        "font-size": size,
        "font-weight": style.fontWeight,
        "font-style": style.fontStyle,
        textLength: width,
        ...paint("fill", style.color),
      };
      return svgElement("text", attributes, escaped(word));
    })
    .join("");
}

/** An SVG inside the figure, with its computed colours. */
function drawing(svg, at) {
  const copy = svg.cloneNode(true);
  const originals = [svg, ...svg.querySelectorAll("*")];
  [copy, ...copy.querySelectorAll("*")].forEach((element, i) => {
    const style = getComputedStyle(originals[i]);
    for (const name of ["class", "style", "tabindex", "role"]) element.removeAttribute(name);
    if (style.visibility === "hidden") element.setAttribute("visibility", "hidden");
    for (const property of DRAWN) {
      const value = style.getPropertyValue(property);
      const isColour = (property === "fill" || property === "stroke") && !/^(none|url)/.test(value);
      for (const [key, text] of Object.entries(
        isColour ? paint(property, value) : { [property]: value },
      ))
        if (!(key.endsWith("-opacity") && text === "1")) element.setAttribute(key, text);
    }
    if (element.tagName === "text") element.setAttribute("font-family", style.fontFamily);
  });
  const { left, top, width, height } = at(svg.getBoundingClientRect());
  for (const [name, value] of Object.entries({ x: left, y: top, width, height }))
    copy.setAttribute(name, value);
  copy.setAttribute("overflow", "visible");
  return new XMLSerializer().serializeToString(copy).replace(/<!--.*?-->/g, "");
}

const CONTROLS = "button[data-tool], .figure-tools, .player, .figure-table";

function walk(node, at) {
  if (node.nodeType === Node.TEXT_NODE)
    return node.textContent.trim() ? words(node, getComputedStyle(node.parentElement), at) : "";
  if (node.nodeType !== Node.ELEMENT_NODE || node.matches(CONTROLS)) return "";
  const style = getComputedStyle(node);
  if (style.display === "none" || style.visibility === "hidden") return "";
  if (node.namespaceURI === NAMESPACE) return drawing(node, at);
  const inside = () => [...node.childNodes].map((child) => walk(child, at)).join("");
  if (node.tagName === "IMG") {
    const { left, top, width, height } = at(node.getBoundingClientRect());
    const image = { x: left, y: top, width, height, href: node.src, preserveAspectRatio: "none" };
    return svgElement("image", { ...image, style: "image-rendering:pixelated" });
  }
  if (node.tagName === "SELECT") {
    const { left, top, height } = at(node.getBoundingClientRect());
    const text = node.selectedOptions[0]?.textContent.trim() ?? "";
    const bounds = { x: left + 6, y: round(top + height / 2 + 5), "font-size": 14 };
    const face = { "font-family": style.fontFamily, ...paint("fill", style.color) };
    return box(node, style, at) + svgElement("text", { ...bounds, ...face }, escaped(text));
  }
  return box(node, style, at) + inside();
}

/** A figure as SVG source. */
export function asSvg(figure) {
  const frame = figure.getBoundingClientRect();
  const at = ({ left, top, width, height }) => ({
    left: round(left - frame.left),
    top: round(top - frame.top),
    width: round(width),
    height: round(height),
  });
  const size = { width: Math.ceil(frame.width), height: Math.ceil(frame.height) };
  const viewBox = `0 0 ${size.width} ${size.height}`;
  return svgElement("svg", { xmlns: NAMESPACE, ...size, viewBox }, walk(figure, at));
}

const DENSITY = 2;

/** A figure as a PNG of twice its size on the screen. */
export async function asPng(figure) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(asSvg(figure))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = image.width * DENSITY;
  canvas.height = image.height * DENSITY;
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
