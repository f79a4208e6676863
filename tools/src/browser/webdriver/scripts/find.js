// Visible elements by role and accessible name, in the order of the page.
// Roles of elements: W3C, ARIA in HTML, section 4; names: Accessible Name and Description Computation 1.2, of which
// this is the part that pages of today need.
const [role, text, most] = arguments;

const native = {
  button: 'button, input[type=button], input[type=submit], input[type=reset], input[type=image], summary',
  link: 'a[href], area[href]',
  textbox:
    'textarea, input:not([type]), input[type=text], input[type=email], input[type=tel], input[type=url], ' +
    'input[type=search], input[type=password], [contenteditable=""], [contenteditable=true]',
  searchbox: 'input[type=search]',
  combobox: 'select:not([multiple]), input[list]',
  listbox: 'select[multiple]',
  option: 'option',
  checkbox: 'input[type=checkbox]',
  radio: 'input[type=radio]',
  heading: 'h1, h2, h3, h4, h5, h6',
  listitem: 'li',
  img: 'img',
};

const squeezed = (value) => (value || '').replace(/\s+/g, ' ').trim();

function nameOf(element) {
  const ids = squeezed(element.getAttribute('aria-labelledby'));
  if (ids) {
    const labels = ids.split(' ').map((id) => document.getElementById(id));
    const name = squeezed(labels.map((label) => (label ? label.textContent : '')).join(' '));
    if (name) return name;
  }
  const candidates = [element.getAttribute('aria-label')];
  if (element.labels && element.labels.length) {
    candidates.push(Array.from(element.labels, (label) => label.innerText).join(' '));
  }
  const tag = element.localName;
  if (tag === 'input') {
    if (['button', 'submit', 'reset'].includes(element.type)) {
      candidates.push(element.value || { submit: 'Submit', reset: 'Reset' }[element.type]);
    }
    candidates.push(element.getAttribute('alt'));
  } else if (tag === 'img' || tag === 'area') {
    candidates.push(element.getAttribute('alt'));
  } else if (tag !== 'select' && tag !== 'textarea') {
    candidates.push(element.innerText, tag === 'option' ? element.textContent : '');
    candidates.push(Array.from(element.querySelectorAll('img[alt]'), (image) => image.alt).join(' '));
  }
  candidates.push(element.getAttribute('title'), element.getAttribute('placeholder'));
  return candidates.map(squeezed).find((candidate) => candidate) || '';
}

function isVisible(element) {
  if (element.localName === 'option') {
    const list = element.closest('select');
    return !!list && isVisible(list);
  }
  if (element.closest('[aria-hidden=true], [inert]')) return false;
  if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true })) return false;
  const box = element.getBoundingClientRect();
  return box.width > 0 && box.height > 0;
}

const selector = (native[role] ? native[role] + ', ' : '') + '[role=' + CSS.escape(role) + ']';
const has = (element) => {
  const given = squeezed(element.getAttribute('role')).toLowerCase();
  return !given || given.split(' ')[0] === role;
};
const candidates = Array.from(document.querySelectorAll(selector)).filter(has);
if (text === null) return candidates.filter(isVisible).slice(0, most);
const wanted = squeezed(text);
const named = candidates.map((element) => [element, nameOf(element)]);
const like = (same) => named.filter(([element, name]) => same(name) && isVisible(element)).map(([element]) => element);
const exact = like((name) => name === wanted);
const found = exact.length ? exact : like((name) => name.toLowerCase() === wanted.toLowerCase());
return found.slice(0, most);
