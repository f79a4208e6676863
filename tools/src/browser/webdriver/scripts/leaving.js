// Whether the page is about to be left after the click that watch.js recorded.
const watch = document[Symbol.for("lumos.click")];
const goes = (event) => Boolean(event) && !event.defaultPrevented;
return Boolean(watch) && (!watch.handled || goes(watch.submit) || goes(watch.navigate));
