// Texts that can be seen: the page's lines, or one text of each element that a selector names.
const [selector, most] = arguments;
const squeezed = (value) => value.replace(/\s+/g, ' ').trim();
let left = most;
const texts = [];
const keep = (text) => {
  const kept = text.slice(0, left);
  left -= kept.length + 1;
  texts.push(kept);
  return left > 0;
};
if (selector === null) {
  const lines = (document.body ? document.body.innerText : '').slice(0, 4 * most).split('\n');
  lines.map(squeezed).filter((line) => line).every(keep);
} else {
  const elements = Array.from(document.querySelectorAll(selector));
  elements
    .filter((element) => element.checkVisibility({ opacityProperty: true, visibilityProperty: true }))
    .every((element) => keep(squeezed(element.innerText)));
}
return texts;
