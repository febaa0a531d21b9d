// Line and bar charts as SVG. A chart redraws itself when its data or its width changes.

import { fill, h } from "./dom.js";

const HEIGHT = 180;
const MARGIN = { top: 10, right: 8, bottom: 22, left: 46 };
const MIN_LABEL_WIDTH = 64;

/**
 * Return a chart: { element, update(points) }.
 * `series` is a list of { name, label, kind: "line" | "area" | "bar", color: 1 to 5 or "bad" } whose values are
 * `point[name]`; null is a gap. `formatValue` and `formatTime` return texts, `label` says what the chart shows.
 */
export function createChart({ series, formatValue, formatTime, label }) {
  const plot = h("div.chart-plot");
  const tip = h("div.chart-tip", { hidden: true });
  const legend = h(
    "ul.chart-legend",
    series.map((each) => h("li", h("span.chart-key", { dataset: { color: each.color } }), each.label)),
  );
  const element = h("figure.chart", { "aria-label": label }, legend, h("div.chart-box", plot, tip));
  let points = [];
  let scale = null;

  function draw() {
    const width = Math.max(Math.floor(plot.clientWidth), 120);
    const values = series.flatMap((each) => points.map((point) => point[each.name] ?? 0));
    const max = niceMaximum(Math.max(...values, 0));
    const inner = { width: width - MARGIN.left - MARGIN.right, height: HEIGHT - MARGIN.top - MARGIN.bottom };
    const step = inner.width / Math.max(points.length, 1);
    scale = {
      x: (index) => MARGIN.left + step * (index + 0.5),
      y: (value) => MARGIN.top + inner.height * (1 - value / max),
      step,
      width,
    };
    const svg = h("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-label": describe() });
    for (const share of [0, 0.5, 1]) {
      const y = scale.y(max * share);
      svg.append(h("line", { class: "chart-grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y }));
      svg.append(h("text", { class: "chart-axis", x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" }, share ? formatValue(max * share) : "0"));
    }
    drawTimes(svg, inner.width);
    const bars = series.filter((each) => each.kind === "bar");
    series.forEach((each) => {
      const position = bars.indexOf(each);
      if (position >= 0) drawBars(svg, each, position, bars.length);
      else drawLine(svg, each);
    });
    svg.append(h("line", { class: "chart-cursor", y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, x1: -1, x2: -1 }));
    fill(plot, svg);
  }

  function drawTimes(svg, innerWidth) {
    const every = Math.max(Math.ceil((points.length * MIN_LABEL_WIDTH) / innerWidth), 1);
    points.forEach((point, index) => {
      if ((points.length - 1 - index) % every !== Math.floor(every / 2)) return;
      svg.append(h("text", { class: "chart-axis", x: scale.x(index), y: HEIGHT - 6, "text-anchor": "middle" }, formatTime(point)));
    });
  }

  function drawBars(svg, each, position, count) {
    const width = Math.max(Math.min((scale.step * 0.7) / count, 26), 1);
    points.forEach((point, index) => {
      const value = point[each.name];
      if (!value) return;
      const x = scale.x(index) - (width * count) / 2 + width * position;
      const y = scale.y(Math.max(value, 0));
      svg.append(h("rect", { class: "chart-bar", "data-color": each.color, x, y, width, height: Math.max(scale.y(0) - y, 1), rx: 1.5 }));
    });
  }

  function drawLine(svg, each) {
    let path = "";
    let isOpen = false;
    points.forEach((point, index) => {
      const value = point[each.name];
      if (value === null || value === undefined) {
        isOpen = false;
        return;
      }
      path += `${isOpen ? "L" : "M"}${scale.x(index).toFixed(1)} ${scale.y(value).toFixed(1)}`;
      isOpen = true;
      const isAlone = [index - 1, index + 1].every((other) => (points[other]?.[each.name] ?? null) === null);
      if (isAlone) svg.append(h("circle", { class: "chart-dot", "data-color": each.color, cx: scale.x(index), cy: scale.y(value), r: 2.5 }));
    });
    if (!path) return;
    if (each.kind === "area") {
      const closed = `${path}L${scale.x(points.length - 1)} ${scale.y(0)}L${scale.x(0)} ${scale.y(0)}Z`;
      svg.append(h("path", { class: "chart-area", "data-color": each.color, d: closed }));
    }
    svg.append(h("path", { class: "chart-line", "data-color": each.color, d: path }));
  }

  function describe() {
    const last = points.at(-1);
    if (!last) return `${label}: no data`;
    return `${label}. Latest: ${series.map((each) => `${each.label} ${formatNullable(last[each.name])}`).join(", ")}`;
  }

  const formatNullable = (value) => (value === null || value === undefined ? "–" : formatValue(value));

  function showTip(event) {
    if (!points.length) return;
    const box = plot.getBoundingClientRect();
    const index = Math.min(Math.max(Math.round((event.clientX - box.left - MARGIN.left) / scale.step - 0.5), 0), points.length - 1);
    const point = points[index];
    const x = scale.x(index);
    const cursor = plot.querySelector(".chart-cursor");
    cursor?.setAttribute("x1", x);
    cursor?.setAttribute("x2", x);
    fill(
      tip,
      h("div.muted", formatTime(point)),
      series.map((each) => h("div.row.spread", h("span", h("span.chart-key", { dataset: { color: each.color } }), each.label), h("strong", formatNullable(point[each.name])))),
    );
    tip.hidden = false;
    tip.style.setProperty("left", `${Math.min(Math.max(x, 80), scale.width - 80)}px`);
  }

  function hideTip() {
    tip.hidden = true;
    for (const name of ["x1", "x2"]) plot.querySelector(".chart-cursor")?.setAttribute(name, -1);
  }

  plot.addEventListener("pointermove", showTip);
  plot.addEventListener("pointerleave", hideTip);
  let drawnWidth = 0;
  new ResizeObserver(() => {
    if (plot.clientWidth !== drawnWidth) {
      drawnWidth = plot.clientWidth;
      draw();
    }
  }).observe(plot);

  return {
    element,
    update(newPoints) {
      points = newPoints;
      if (plot.clientWidth) draw();
    },
  };
}

/** Return the smallest of 1, 2, 2.5, 5 times a power of ten that is not smaller. */
export function niceMaximum(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((each) => each * power).find((each) => each >= value * 0.9999) ?? value;
}
