// What a page of the shop's site shows, once it is whole and behind so many actions; null before that.
const [step] = arguments;
const main = document.querySelector('main[data-step]');
if (!main || document.readyState !== 'complete') return null;
if (step !== null && main.dataset.step !== String(step)) return null;
const textOf = (element) =>
  element.dataset.exact === undefined ? element.textContent : decodeURIComponent(element.dataset.exact);
const roles = { H2: 'heading', P: 'text', A: 'link', BUTTON: 'button' };
const roleOf = (element) => element.getAttribute('role') || roles[element.tagName];
const shown = main.querySelectorAll(':scope > h2, :scope > p:not(:has(> a)), :scope > p > a, :scope > form > button');
const alert = document.querySelector('body > [role=alert]');
return {
  step: Number(main.dataset.step),
  elements: Array.from(shown, (element) => [roleOf(element), textOf(element), element.textContent]),
  raised: alert && alert.textContent,
  purchase: main.dataset.reward === undefined ? null : { ...main.dataset },
};
