// The option of a select element that has a text or, if none has, a value.
const [element, wanted] = arguments;
if (element.localName !== 'select') return null;
const squeezed = (value) => (value || '').replace(/\s+/g, ' ').trim();
const options = Array.from(element.options).filter((option) => !option.disabled);
const text = squeezed(wanted);
const same = (of) => options.find((option) => of(option));
return (
  same((option) => squeezed(option.label || option.text) === text) ||
  same((option) => squeezed(option.label || option.text).toLowerCase() === text.toLowerCase()) ||
  same((option) => option.value === wanted) ||
  null
);
