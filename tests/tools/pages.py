"""Checks pages with axe-core and takes screenshots: light and dark, 1280 and 390 pixels wide, with an item open.

Exit code 1 if axe-core finds a violation, the console has a message, a page is wider than a phone, print lacks headings of turns
or cuts charts, or the address of a changed item does not open the same sides again.
"""

import argparse
import pathlib
import shutil
import sys
import time

from selenium import webdriver

TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
WIDTHS = [(1280, 900), (390, 844)]
LIMIT_SECONDS = 60
LOADED = "document.querySelector('.panel h3') && !document.querySelector('.panel').textContent.includes('Loading')"
UNPRINTED = """
return [...document.querySelectorAll('.turn h4')].filter((one) => !one.getClientRects().length).length
  + [...document.querySelectorAll('.scroll')].filter((one) => getComputedStyle(one).overflowX !== 'visible').length
  + [...document.querySelectorAll('.scroll > svg')].filter((one) => one.clientWidth > one.parentElement.clientWidth).length
"""
SIDES = "return [...document.querySelectorAll('.panel dl + .sides h4')].map((one) => one.textContent)"


def start():
    options = webdriver.ChromeOptions()
    for argument in ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"]:
        options.add_argument(argument)
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))


def show(browser, width, height, scheme):
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def wait(browser, condition):
    until = time.monotonic() + LIMIT_SECONDS
    while not browser.execute_script(f"return Boolean({condition})"):
        if time.monotonic() > until:
            raise SystemExit(f"timed out: {condition}")
        time.sleep(0.02)


def load(browser, page):
    browser.get("about:blank")
    browser.get(page.resolve().as_uri())
    wait(browser, "!document.getElementById('index') || document.documentElement.dataset.ready")


def violations(browser, axe):
    browser.execute_script(axe)
    found = browser.execute_async_script(
        "const done = arguments[1]; axe.run(document, {runOnly: arguments[0]}).then(done, (error) => done({error: String(error)}))",
        TAGS,
    )
    if "error" in found:
        raise SystemExit(found["error"])
    for one in found["violations"]:
        print(f"  {one['id']}: {one['help']}")
        for node in one["nodes"][:5]:
            print(f"    {node['target']} {node['html'][:160]}")
    return len(found["violations"]), len(found["passes"])


def unprinted(browser):
    """Returns the number of parts that a printed page lacks or cuts."""
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    found = browser.execute_script(UNPRINTED)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    return found


def follow_change(browser, page):
    """Opens a changed item of a comparison, then its address. Returns the names of both sides, each time."""
    load(browser, page)
    browser.execute_script("document.querySelector('a[data-unit]').click()")
    wait(browser, LOADED)
    wait(browser, "location.hash.includes('unit=')")
    clicked = browser.execute_script(SIDES)
    browser.refresh()
    wait(browser, f"document.documentElement.dataset.ready && {LOADED}")
    return clicked, browser.execute_script(SIDES)


def check(browser, page, axe, output):
    failures = 0
    for width, height in WIDTHS:
        for scheme in ["light", "dark"]:
            name = f"{'-'.join(page.resolve().with_suffix('').parts[-3:])}-{width}-{scheme}"
            show(browser, width, height, scheme)
            load(browser, page)
            wide = browser.execute_script("return document.documentElement.scrollWidth")
            if wide > width:
                print(f"{page}: {wide} pixels wide at {width}")
                failures += 1
            full = browser.execute_script("return document.documentElement.scrollHeight")
            show(browser, width, min(full, 6000), scheme)
            browser.save_screenshot(str(output / f"{name}.png"))
            states = ["page"]
            show(browser, width, height, scheme)
            if browser.execute_script("return Boolean(document.querySelector('.scroller tbody a'))"):
                states.append("item")
            for state in states:
                if state == "item":
                    browser.execute_script("document.querySelector('.scroller tbody a').click()")
                    wait(browser, LOADED)
                    browser.execute_script("document.querySelector('.panel').scrollIntoView()")
                    browser.save_screenshot(str(output / f"{name}-item.png"))
                count, passes = violations(browser, axe)
                failures += count
                print(f"{page} {width} {scheme} {state}: {count} violations, {passes} passes")
            if parts := unprinted(browser):
                print(f"{page}: {parts} parts are missing or cut in print at {width}")
                failures += 1
    if browser.execute_script("return Boolean(document.querySelector('.scroller') && document.querySelector('a[data-unit]'))"):
        clicked, reopened = follow_change(browser, page)
        if len(set(clicked)) != 2 or reopened != clicked:
            print(f"{page}: a changed item shows {clicked}, its address {reopened}")
            failures += 1
    for message in browser.get_log("browser"):
        print(f"{page}: console: {message['message']}")
        failures += 1
    return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--axe", type=pathlib.Path, required=True)
    parser.add_argument("--output", type=pathlib.Path, required=True)
    parser.add_argument("pages", nargs="+", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    axe = arguments.axe.read_text()
    browser = start()
    try:
        # The policy of the pages would keep axe-core out.
        browser.execute_cdp_cmd("Page.enable", {})
        browser.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
        failures = sum(check(browser, page, axe, arguments.output) for page in arguments.pages)
    finally:
        browser.quit()
    sys.exit(1 if failures else 0)


main()
