// Records on the document what the next click leads to. A new page has no such record. Returns whether the element that
// is to be used is disabled.
const key = Symbol.for("lumos.click");
document[key]?.listeners.abort();
const listeners = new AbortController();
const watch = { listeners, handled: true, submit: null, navigate: null };
document[key] = watch;
const options = { capture: true, signal: listeners.signal };
// Submissions by scripts start in a task of their own, before the timers that are set here.
addEventListener("click", () => {
  watch.handled = false;
  setTimeout(() => setTimeout(() => { watch.handled = true; }));
}, options);
addEventListener("submit", (event) => {
  const value = (name) =>
    (event.submitter?.getAttribute(`form${name}`) ?? event.target.getAttribute(name) ?? "").toLowerCase();
  const here = ["", "_self", "_top", "_parent"].includes(value("target")) && value("method") !== "dialog";
  watch.submit = here ? event : null;
}, options);
addEventListener("securitypolicyviolation", (event) => {
  if (event.effectiveDirective === "form-action") watch.submit = null;
}, options);
const navigation = window.navigation;
navigation?.addEventListener("navigate", (event) => {
  const leaves = !event.hashChange && !event.destination.sameDocument && event.downloadRequest === null;
  watch.navigate = leaves ? event : null;
}, options);
// The page handled the navigation itself and stays.
for (const name of ["navigatesuccess", "navigateerror"]) {
  navigation?.addEventListener(name, () => { watch.navigate = watch.submit = null; }, options);
}
return arguments[0].matches(':disabled, [aria-disabled="true"]');
