// Builds a page element by element. The argument holds its elements in document order as JSON, each as the place of its
// parent (-1 for the root), name, attributes, the text in front of its children, and the text behind it.

// What shows nothing on a page, and must do nothing.
const NOTHING = new Set([
  'base', 'link', 'meta', 'noscript', 'param', 'script', 'source', 'style', 'template', 'track',
]);
// What would hold another page, or hide what stands in it.
const BOXES = new Set([
  'applet', 'audio', 'canvas', 'embed', 'fencedframe', 'frame', 'frameset', 'geolocation', 'iframe', 'marquee', 'object',
  'permission', 'portal', 'video', 'webview',
]);
// Attributes under the names that the data set gave them.
const MEANT = { aria_description: 'aria-description', aria_label: 'aria-label', aria_role: 'role' };
// What stands in these is text and no elements.
const PLAIN = new Set(['option', 'textarea', 'title']);

const make = (name, parent) => {
  // An option without its list is a line of text.
  const inList = parent.nodeType === Node.ELEMENT_NODE && parent.closest('select');
  if ((name === 'option' || name === 'optgroup') && !inList) return document.createElement('div');
  if (NOTHING.has(name)) {
    const element = document.createElement('div');
    element.hidden = true;
    return element;
  }
  try {
    return document.createElement(BOXES.has(name) ? 'div' : name);
  } catch {
    return document.createElement('div');
  }
};

const describe = (element, attributes) => {
  for (const [name, value] of attributes) {
    element.setAttribute(MEANT[name] || name, value);
    if (name === 'option_selected' && value === 'true') element.setAttribute('selected', '');
    if (name === 'input_checked' && value === 'true') element.setAttribute('checked', '');
    if (name === 'input_value' && element.localName === 'input') element.setAttribute('value', value);
    if (name === 'text_value' && element.localName === 'textarea') element.defaultValue = value;
  }
  // What opens a dialog of the system is a button: drivers do not click the other.
  if (element.localName === 'input' && element.type === 'file') {
    element.type = 'button';
    element.value = 'Choose a file';
  }
  if (element.localName === 'details' || element.localName === 'dialog') element.setAttribute('open', '');
};

// An element whose picture or icon is not part of the data still takes some room.
const sheet = new CSSStyleSheet();
sheet.replaceSync(`
  * { animation: none !important; transition: none !important; scroll-behavior: auto !important }
  :where(:not(br, wbr, hr, input, textarea, select, option, optgroup, text)):empty { padding: 8px }
  dialog { position: static }
`);
document.adoptedStyleSheets = [sheet];
delete window.clicked;

const page = document.createDocumentFragment();
const made = [];
for (const [place, name, attributes, text, tail] of JSON.parse(arguments[0])) {
  const parent = place < 0 ? page : made[place];
  if (name === 'text' && PLAIN.has(parent.localName)) {
    parent.append(text, tail);
    made.push(parent);
    continue;
  }
  const element = make(name.toLowerCase(), parent);
  describe(element, attributes);
  if (text) element.append(text);
  parent.append(element);
  if (tail) parent.append(tail);
  made.push(element);
}
document.body.replaceChildren(page);
