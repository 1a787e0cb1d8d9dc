//! Page in a browser, with the input of a user.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use plimsoll_testing::target;
use serde_json::{Value, json};

use super::browser::Browser;
use super::{wait_for, wait_to_see};

/// Open page. Errors inside it fail the test when it is closed.
pub(crate) struct Page {
    browser: Browser,
    session: String,
    address: String,
    size: Size,
}

/// Size of the window.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) mobile: bool,
}

pub(crate) const DESKTOP: Size = Size {
    width: 1440,
    height: 1000,
    mobile: false,
};
pub(crate) const PHONE: Size = Size {
    width: 390,
    height: 844,
    mobile: true,
};

impl Page {
    /// Opens `address` and waits for the first document.
    pub(crate) fn open(name: &str, address: &str, size: Size) -> Self {
        let mut browser = Browser::start(name);
        let blank = json!({ "url": "about:blank" });
        let target = browser.call(None, "Target.createTarget", &blank);
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call(None, "Target.attachToTarget", &attach);
        let mut page = Self {
            browser,
            session: session["sessionId"].as_str().unwrap().to_owned(),
            address: address.split('#').next().unwrap_or_default().to_owned(),
            size,
        };
        for domain in ["Page", "Runtime", "Log", "Network"] {
            page.call(&format!("{domain}.enable"), &json!({}));
        }
        page.resize(size);
        page.call("Page.navigate", &json!({ "url": address }));
        page.wait("document.body?.dataset.sequence >= 1");
        page
    }

    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.browser.call(Some(&self.session), method, params)
    }

    /// Evaluates a JavaScript expression; awaits promises.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let params = json!({
            "expression": expression,
            "returnByValue": true,
            "awaitPromise": true,
        });
        let answer = self.call("Runtime.evaluate", &params);
        let thrown = &answer["exceptionDetails"];
        assert!(thrown.is_null(), "{expression}: {thrown}");
        answer["result"]["value"].clone()
    }

    /// Evaluates an expression that returns a string.
    pub(crate) fn text(&mut self, expression: &str) -> String {
        let value = self.eval(expression);
        let text = value.as_str();
        text.unwrap_or_else(|| panic!("{expression} is {value}"))
            .to_owned()
    }

    /// Waits until an expression is true.
    pub(crate) fn wait(&mut self, expression: &str) {
        let condition = format!("Boolean({expression})");
        wait_for(expression, || {
            self.eval(&condition).as_bool().filter(|is| *is)
        });
    }

    /// Waits until the text of an element contains another one, and fails with the text.
    pub(crate) fn wait_for_text(&mut self, selector: &str, part: &str) {
        let text = format!("document.querySelector('{selector}')?.textContent ?? ''");
        let what = format!("{selector} says {part:?}");
        wait_to_see(&what, || self.text(&text), |seen| seen.contains(part));
    }

    /// Waits until another document is received and drawn.
    pub(crate) fn next_document(&mut self) {
        let seen = self.eval("Number(document.body.dataset.sequence)");
        self.wait(&format!("Number(document.body.dataset.sequence) > {seen}"));
    }

    /// Frees what the page no longer uses.
    pub(crate) fn collect_garbage(&mut self) {
        self.call("HeapProfiler.collectGarbage", &json!({}));
    }

    /// Reloads the page and waits for the first document.
    pub(crate) fn reload(&mut self) {
        self.eval("window.before = true");
        self.call("Page.reload", &json!({}));
        self.wait("!window.before && document.body?.dataset.sequence >= 1");
    }

    pub(crate) fn resize(&mut self, size: Size) {
        self.size = size;
        let params = json!({
            "width": size.width,
            "height": size.height,
            "deviceScaleFactor": 1,
            "mobile": size.mobile,
        });
        self.call("Emulation.setDeviceMetricsOverride", &params);
    }

    /// Sets the preferred color scheme: `dark` or `light`.
    pub(crate) fn prefer(&mut self, scheme: &str) {
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.call(
            "Emulation.setEmulatedMedia",
            &json!({ "features": [feature] }),
        );
    }

    /// Presses a key in the focused element.
    pub(crate) fn press(&mut self, key: &str) {
        let text = match key {
            "Enter" => "\r",
            _ => "",
        };
        let code = match key {
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            other => panic!("unknown key {other}"),
        };
        for kind in ["keyDown", "keyUp"] {
            let params = json!({
                "type": kind, "key": key, "code": key, "text": text,
                "windowsVirtualKeyCode": code,
            });
            self.call("Input.dispatchKeyEvent", &params);
        }
    }

    /// Replaces the content of a field.
    pub(crate) fn type_into(&mut self, selector: &str, words: &str) {
        let selector = json!(selector);
        let field = format!("document.querySelector({selector})");
        self.eval(&format!("{field}.focus(); {field}.select()"));
        self.call("Input.insertText", &json!({ "text": words }));
    }

    pub(crate) fn click(&mut self, selector: &str) {
        let selector = json!(selector);
        self.eval(&format!("document.querySelector({selector}).click()"));
    }

    /// Writes a screenshot of the whole page to `target/screenshots/NAME.png`.
    pub(crate) fn screenshot(&mut self, name: &str) {
        // On a phone, capturing more than the window would lay out the page with another width.
        let before = self.size;
        if before.mobile {
            let height = self.eval("document.documentElement.scrollHeight");
            let height = u32::try_from(height.as_u64().unwrap()).unwrap();
            self.resize(Size { height, ..before });
        }
        // Smooth scrolling would show sticky elements in the middle of the page.
        self.eval("window.scrollTo({ top: 0, behavior: 'instant' })");
        // Wait until the next frame is drawn.
        self.eval(
            "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))",
        );
        let params = json!({ "format": "png", "captureBeyondViewport": !before.mobile });
        let answer = self.call("Page.captureScreenshot", &params);
        self.resize(before);
        let directory = target().join("screenshots");
        std::fs::create_dir_all(&directory).unwrap();
        let bytes = BASE64.decode(answer["data"].as_str().unwrap()).unwrap();
        std::fs::write(directory.join(format!("{name}.png")), bytes).unwrap();
    }

    /// Asserts that no texts overlap, leave the window or their picture, or have unformatted
    /// numbers.
    pub(crate) fn assert_tidy(&mut self) {
        let wide = self.eval("document.documentElement.scrollWidth - window.innerWidth");
        assert!(
            wide.as_i64().unwrap() <= 0,
            "wider than the window by {wide}"
        );
        let overlaps = self.eval(OVERLAPS);
        assert_eq!(overlaps, json!([]), "these overlap");
        let cut = self.eval(CUT);
        assert_eq!(cut, json!([]), "these exceed their picture");
        let raw = self.eval(RAW);
        assert_eq!(raw, json!([]), "these numbers are not formatted");
    }

    /// Closes the page; fails on exceptions, log entries and requests to other hosts.
    pub(crate) fn close(self) {
        let problems = ["Runtime.exceptionThrown", "Log.entryAdded"];
        for method in problems {
            let found: Vec<_> = self.browser.events(method).collect();
            assert!(found.is_empty(), "{method}: {found:?}");
        }
        for request in self.browser.events("Network.requestWillBeSent") {
            let url = request["request"]["url"].as_str().unwrap();
            assert!(url.starts_with(&self.address), "{url} was requested");
        }
    }
}

/// Finds pairs of texts that overlap.
const OVERLAPS: &str = "(() => {
  const clipped = (e) => e && getComputedStyle(e).clipPath !== 'none';
  const seen = (e) => e.checkVisibility() && e.textContent.trim() && !e.closest('.said')
    && !clipped(e.closest('thead'));
  const inside = (a, b) => a.contains(b) || b.contains(a);
  const leaves = [...document.querySelectorAll('main *, header *')].filter((e) => seen(e)
    && [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())
    && !['OPTION', 'TITLE', 'text'].includes(e.tagName));
  const boxes = leaves.flatMap((e) => {
    const scroller = e.closest('.scroller, .events');
    const clip = scroller?.getBoundingClientRect();
    const range = document.createRange();
    range.selectNodeContents(e);
    const r = e instanceof SVGElement ? e.getBoundingClientRect() : range.getBoundingClientRect();
    const rolled = clip && !e.closest('thead') && (r.top < clip.top + 30 || r.bottom > clip.bottom);
    if (rolled) { return []; }
    if (getComputedStyle(e).overflow === 'hidden') { return []; }
    return [{ e, r }];
  });
  const found = [];
  for (let i = 0; i < boxes.length; i += 1) {
    for (let j = i + 1; j < boxes.length; j += 1) {
      const [a, b] = [boxes[i], boxes[j]];
      if (inside(a.e, b.e)) { continue; }
      const x = Math.min(a.r.right, b.r.right) - Math.max(a.r.left, b.r.left);
      const y = Math.min(a.r.bottom, b.r.bottom) - Math.max(a.r.top, b.r.top);
      if (x > 2 && y > 4) {
        found.push(`${a.e.textContent} / ${b.e.textContent}`);
      }
    }
  }
  return found.slice(0, 10);
})()";

/// Finds texts of the map that exceed it.
const CUT: &str = "[...document.querySelectorAll('#map tspan')].filter((e) => {
  const [own, map] = [e.getBoundingClientRect(), e.closest('svg').getBoundingClientRect()];
  return own.left < map.left - 1 || own.right > map.right + 1;
}).map((e) => e.textContent)";

/// Finds texts with too many decimals, and cells that are not numbers.
const RAW: &str = "[...document.querySelectorAll('main td, main th, main dd, main tspan, main p')]
  .filter((e) => e.checkVisibility())
  .map((e) => e.textContent)
  .filter((t) => /\\d\\.\\d{4,}|NaN|undefined|Infinity|\\bnull\\b|\\[object/.test(t))
  .slice(0, 10)";
