// Scrolls the element that an action is really done to into view and returns it, or what is in the way. What is clicked
// is taken down.
const [selector, action] = arguments;
const element = document.querySelector(selector);
if (!element) return 'no_element';
const TYPES = [
  'date', 'datetime-local', 'email', 'month', 'number', 'password', 'search', 'tel', 'text', 'time', 'url', 'week',
];

const isField = (of) =>
  of.localName === 'textarea' || (of.localName === 'input' && TYPES.includes(of.type)) || of.isContentEditable;
const isList = (of) => of.localName === 'select';

// The element itself, what its label is for, or the only such element in it.
const meant = (fits) => {
  if (fits(element)) return element;
  const label = element.closest('label');
  if (label && label.control && fits(label.control)) return label.control;
  const within = Array.from(element.querySelectorAll('input, textarea, select, [contenteditable]')).filter(fits);
  return within.length === 1 ? within[0] : null;
};

const host = (of) => {
  let around = of;
  while (around.isContentEditable && around.parentElement && around.parentElement.isContentEditable) {
    around = around.parentElement;
  }
  return around;
};

let target = element;
if (action === 'TYPE') {
  const field = meant(isField);
  if (!field || field.readOnly) return 'not_editable';
  target = host(field);
} else if (action === 'SELECT') {
  target = (element.localName === 'option' && element.closest('select')) || meant(isList);
  if (!target) return 'no_list';
}
// An option is seen as part of its list.
const shown = (target.localName === 'option' && target.closest('select')) || target;

const boxes = () => Array.from(shown.getClientRects()).filter((box) => box.width > 0 && box.height > 0);
if (!shown.checkVisibility({ visibilityProperty: true }) || boxes().length === 0) return 'hidden';
if (target.matches(':disabled, [aria-disabled="true"]') || target.closest('button:disabled')) return 'disabled';

shown.scrollIntoView({ block: 'center', inline: 'center', behavior: 'instant' });
const box = boxes()[0];
const middle = (low, high, most) => (Math.max(low, 0) + Math.min(high, most)) / 2;
const hit = document.elementFromPoint(
  middle(box.left, box.right, innerWidth),
  middle(box.top, box.bottom, innerHeight)
);
if (!hit) return 'hidden';
if (!shown.contains(hit)) return 'covered';

// Nothing comes of a click. An option is chosen by its click, so that is left alone.
if (action === 'CLICK' && target.localName !== 'option' && !window.clicked) {
  window.clicked = [];
  const stop = (event) => event.preventDefault();
  addEventListener('mousedown', stop, true);
  addEventListener('submit', stop, true);
  addEventListener(
    'click',
    (event) => {
      event.preventDefault();
      window.clicked.push(event.target);
    },
    true
  );
}
return target;
