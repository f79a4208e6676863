// Outlines prediction and truth, given by their selectors, each with a label; what lies outside of the picture is named at
// its edge.
const [prediction, truth, predictionLabel, truthLabel] = arguments;
const shown = (selector) => {
  const element = selector && document.querySelector(selector);
  return (element && element.localName === 'option' && element.closest('select')) || element;
};
const marks = [
  { element: shown(truth), label: truthLabel, colour: '#1a7f37', outset: 4, below: true },
  { element: shown(prediction), label: predictionLabel, colour: '#0969da', outset: 1, below: false },
].filter((mark) => mark.element);

// Both, where they fit; otherwise the prediction.
for (const { element } of marks) element.scrollIntoView({ block: 'center', inline: 'center', behavior: 'instant' });
const places = marks.map(({ element }) => element.getBoundingClientRect());
if (places.length > 0) {
  const top = Math.min(...places.map((place) => place.top));
  const bottom = Math.max(...places.map((place) => place.bottom));
  const last = places[places.length - 1];
  const middle = bottom - top < innerHeight - 80 ? (top + bottom) / 2 : (last.top + last.bottom) / 2;
  scrollBy({ top: middle - innerHeight / 2, behavior: 'instant' });
}

const draw = (style, text) => {
  const drawn = document.createElement('div');
  drawn.style.cssText = `position:fixed;box-sizing:border-box;pointer-events:none;z-index:2147483647;${style}`;
  drawn.textContent = text;
  document.body.append(drawn);
};
for (const { element, label, colour, outset, below } of marks) {
  const place = element.getBoundingClientRect();
  const [left, top] = [place.left - outset, place.top - outset];
  const [width, height] = [place.width + 2 * outset, place.height + 2 * outset];
  draw(`left:${left}px;top:${top}px;width:${width}px;height:${height}px;padding:0;border:2px solid ${colour}`, '');
  const ROW = 18;
  const line = below ? top + height : top - ROW;
  const inside = Math.min(Math.max(line, 0), innerHeight - ROW);
  const arrow = place.bottom < 0 ? '\u2191 ' : place.top > innerHeight ? '\u2193 ' : '';
  const from = Math.min(Math.max(left, 0), innerWidth - 280);
  draw(
    `left:${from}px;top:${inside}px;height:${ROW}px;padding:0 4px;background:${colour};color:#fff;` +
      'font:12px/18px sans-serif;white-space:nowrap',
    arrow + label
  );
}
