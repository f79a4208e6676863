// Takes down what is clicked and lets nothing come of it. An option is chosen by its click, so that is left alone.
if (arguments[0].localName === 'option' || window.clicked) return;
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
