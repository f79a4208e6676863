// Whether an action on an element took effect.
const [element, action, text] = arguments;
const squeezed = (value) => (value || '').replace(/\s+/g, ' ').trim();

if (action === 'CLICK') {
  if (element.localName === 'option') return element.selected;
  const targets = window.clicked.splice(0);
  return targets.some((target) => element.contains(target));
}
if (action === 'TYPE') {
  // What cannot be typed never is.
  const typed = text.replace(/[\ue000-\uf8ff]/g, '').replace(/[\u0000-\u001f\u007f-\u009f]/g, ' ');
  return squeezed(element.isContentEditable ? element.textContent : element.value) === squeezed(typed);
}
const wanted = squeezed(text).toLowerCase();
return Array.from(element.selectedOptions).some(
  (option) => squeezed(option.label || option.text).toLowerCase() === wanted || option.value === text
);
