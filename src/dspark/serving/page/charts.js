// Plain SVG charts. Each says in words what it shows, for those who do not see it.

const WIDTH = 340, HEIGHT = 160, LEFT = 40, RIGHT = 10, TOP = 14, BOTTOM = 36;
const INNER = WIDTH - LEFT - RIGHT, DEPTH = HEIGHT - TOP - BOTTOM;

function svg(tag, attributes, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}

function frame(box, label, parts) {
  const root = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
  root.append(svg("path", { class: "axis", d: `M${LEFT} ${TOP}V${TOP + DEPTH}H${WIDTH - RIGHT}` }), ...parts);
  box.replaceChildren(root);
}

const note = (x, y, text, anchor = "middle", kind = "") => svg("text", { x, y, "text-anchor": anchor, class: kind }, text);
const across = (share) => LEFT + share * INNER;
const up = (share) => TOP + DEPTH - share * DEPTH;

/** A number short enough for an axis. */
export function short(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toPrecision(2);
}

/** Instead of a chart. */
export function nothing(box, text) {
  const words = document.createElement("p");
  words.className = "nothing";
  words.textContent = text;
  box.replaceChildren(words);
}

/** A line through [[x, y], …], and one marked point if given. */
export function line(box, label, points, { xLabel = "", yLabel = "", mark = null } = {}) {
  const all = mark ? [...points, mark] : points;
  const [least, most] = [Math.min(...all.map(([x]) => x)), Math.max(...all.map(([x]) => x))];
  const top = Math.max(...all.map(([, y]) => y)) * 1.1 || 1;
  const place = ([x, y]) => [across(most > least ? (x - least) / (most - least) : 0.5), up(y / top)];
  const path = points.map(place).map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
  const parts = [
    svg("path", { class: "line", d: path }),
    note(LEFT - 4, TOP + 4, short(top), "end"), note(LEFT - 4, TOP + DEPTH, "0", "end"), note(LEFT + 2, TOP - 3, yLabel, "start"),
    note(LEFT, TOP + DEPTH + 13, short(least), "start"), note(WIDTH - RIGHT, TOP + DEPTH + 13, short(most), "end"), note(LEFT + INNER / 2, HEIGHT - 6, xLabel),
  ];
  if (mark) {
    const [x, y] = place(mark);
    parts.push(svg("circle", { class: "point", cx: x, cy: y, r: 5 }));
  }
  frame(box, label, parts);
}

/** Bars with values above them: [[name, value, other value or undefined], …], all within [0, top]. */
export function bars(box, label, entries, { top = 1, format = short, xLabel = "" } = {}) {
  const slot = INNER / entries.length;
  const width = Math.min(slot * 0.7, 42);
  const parts = entries.flatMap(([name, value, other], i) => {
    const middle = LEFT + slot * (i + 0.5);
    const values = other === undefined ? [value] : [value, other];
    const each = width / values.length;
    const drawn = values.map((v, k) => svg("rect", {
      class: k ? "other" : "bar", x: middle - width / 2 + k * each, width: each - 1, y: up(v / top), height: Math.max((v / top) * DEPTH, 0),
    }));
    const above = entries.length <= 9 && other === undefined ? [note(middle, up(value / top) - 3, format(value), "middle", "value")] : [];
    return [...drawn, ...above, note(middle, TOP + DEPTH + 12, name)];
  });
  parts.push(note(LEFT - 4, TOP + 4, format(top), "end"), note(LEFT + INNER / 2, HEIGHT - 6, xLabel));
  frame(box, label, parts);
}

/** One bar cut into named parts: [[name, value], …]. */
export function parts(box, label, entries, format) {
  const total = entries.reduce((sum, [, value]) => sum + value, 0);
  let from = 0;
  const drawn = entries.flatMap(([name, value], i) => {
    const [x, wide] = [8 + (from / total) * (WIDTH - 16), (value / total) * (WIDTH - 16)];
    from += value;
    const row = 70 + i * 20;
    return [
      svg("rect", { class: `part-${i}`, x, y: 14, width: wide, height: 30 }),
      svg("rect", { class: `part-${i}`, x: 8, y: row - 10, width: 12, height: 12 }),
      note(26, row, name, "start"), note(WIDTH - 8, row, `${format(value)} · ${((100 * value) / total).toFixed(0)} %`, "end", "value"),
    ];
  });
  const root = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
  root.append(...drawn);
  box.replaceChildren(root);
}
