//! Chromium, driven as by a person: pages, the pointer, the keyboard and files.
//!
//! It is told what to do by the DevTools protocol over a pipe: JSON objects that end with a zero byte. What goes wrong in a page is
//! collected: exceptions, and what its Content-Security-Policy has blocked.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Opens the pipe where Chromium looks for it, as file descriptors 3 and 4.
const START: &str = "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1";

/// The maximum time until a condition of [`Browser::wait`] is true.
const MOST: Duration = Duration::from_secs(300);

/// A browser with one page.
pub struct Browser {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    session: Value,
    next: u64,
    errors: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// # Panics
/// If the browser or a page does not do what is asked for.
impl Browser {
    /// Starts Chromium; `None`, with a message, if it is not installed.
    pub fn start() -> Option<Browser> {
        match Command::new("chromium").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                // The test harness captures eprintln! and shows it for failures only.
                let _ = writeln!(std::io::stderr(), "skipped: chromium is not installed");
                let required = std::env::var("GATEWORK_JUDGES").is_ok_and(|value| value == "required");
                assert!(!required, "chromium is required but not installed");
                return None;
            }
            found => assert!(found.unwrap().success(), "chromium does not start"),
        }
        let profile = tempfile::tempdir().unwrap();
        let mut child = Command::new("sh")
            .args(["-c", START, "sh", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic"])
            .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
            .args(["--disable-sync", "--remote-debugging-pipe", "--window-size=1280,1000"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut browser = Browser {
            child,
            stdin,
            stdout,
            session: Value::Null,
            next: 0,
            errors: Vec::new(),
            _profile: profile,
        };
        let target =
            browser.call("Target.createTarget", &json!({ "url": "about:blank" }))["targetId"].clone();
        let attach = json!({ "targetId": target, "flatten": true });
        browser.session = browser.call("Target.attachToTarget", &attach)["sessionId"].clone();
        for domain in ["Page", "Runtime", "Log", "DOM"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        Some(browser)
    }

    /// Calls a method of the protocol; an error of the page is returned.
    fn try_call(&mut self, method: &str, parameters: &Value) -> Result<Value, String> {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": parameters });
        if !self.session.is_null() {
            message["sessionId"] = self.session.clone();
        }
        self.stdin.write_all(format!("{message}\0").as_bytes()).unwrap();
        self.stdin.flush().unwrap();
        loop {
            let mut bytes = Vec::new();
            self.stdout.read_until(0, &mut bytes).unwrap();
            assert_eq!(bytes.pop(), Some(0), "chromium has ended");
            let mut answer: Value = serde_json::from_slice(&bytes).unwrap();
            match answer["method"].as_str() {
                Some("Runtime.exceptionThrown") => self.errors.push(answer["params"].to_string()),
                Some("Log.entryAdded") if answer["params"]["entry"]["source"] == "security" => {
                    self.errors.push(answer["params"]["entry"]["text"].to_string());
                }
                _ => {}
            }
            if answer["id"] == self.next {
                if !answer["error"].is_null() {
                    return Err(answer["error"].to_string());
                }
                return Ok(answer["result"].take());
            }
        }
    }

    fn call(&mut self, method: &str, parameters: &Value) -> Value {
        self.try_call(method, parameters).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Goes to an address.
    pub fn open(&mut self, url: &str) {
        self.call("Page.navigate", &json!({ "url": url }));
        self.wait("document.readyState === 'complete'");
    }

    fn try_evaluate(&mut self, script: &str) -> Result<Value, String> {
        let parameters = json!({ "expression": script, "returnByValue": true, "awaitPromise": true });
        let result = self.try_call("Runtime.evaluate", &parameters)?;
        if !result["exceptionDetails"].is_null() {
            return Err(result["exceptionDetails"].to_string());
        }
        Ok(result["result"]["value"].clone())
    }

    /// Returns the value of an expression in the page.
    pub fn evaluate(&mut self, script: &str) -> Value {
        self.try_evaluate(script).unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Waits until an expression is true. It may fail meanwhile: the page may be going to another one.
    pub fn wait(&mut self, condition: &str) {
        let begin = Instant::now();
        let mut last = Ok(Value::Null);
        while last != Ok(Value::Bool(true)) {
            assert!(begin.elapsed() < MOST, "{condition} never was true: {last:?}, {:?}", self.errors);
            std::thread::sleep(Duration::from_millis(20));
            last = self.try_evaluate(&format!("Boolean({condition})"));
        }
    }

    /// Returns the text of an element.
    pub fn text(&mut self, selector: &str) -> String {
        let text = self.evaluate(&format!("document.querySelector({}).textContent", json!(selector)));
        text.as_str().unwrap_or_default().to_string()
    }

    /// Moves the pointer over an element, with the button pressed if `draw`. Points are fractions of its width and height.
    pub fn point(&mut self, selector: &str, points: &[(f64, f64)], draw: bool) {
        let script = format!(
            "(() => {{ const e = document.querySelector({}); e.scrollIntoView({{ block: 'center' }}); \
             const b = e.getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; }})()",
            json!(selector)
        );
        let place: Vec<f64> = serde_json::from_value(self.evaluate(&script)).unwrap();
        let mut send = |kind: &str, (x, y): (f64, f64), pressed: bool| {
            let button = if draw { "left" } else { "none" };
            self.call(
                "Input.dispatchMouseEvent",
                &json!({
                    "type": kind, "x": place[0] + x * place[2], "y": place[1] + y * place[3], "button": button,
                    "buttons": u8::from(pressed), "clickCount": u8::from(draw),
                }),
            );
        };
        let (first, last) = (points[0], points[points.len() - 1]);
        if draw {
            send("mousePressed", first, true);
        }
        for point in points {
            send("mouseMoved", *point, draw);
        }
        if draw {
            send("mouseReleased", last, false);
        }
    }

    /// Clicks on an element.
    pub fn click(&mut self, selector: &str) {
        self.point(selector, &[(0.5, 0.5)], true);
    }

    /// Sets the value of a field, and tells the page.
    pub fn fill(&mut self, selector: &str, value: &str) {
        self.evaluate(&format!(
            "(() => {{ const e = document.querySelector({}); e.value = {}; for (const kind of ['input', 'change']) \
             e.dispatchEvent(new Event(kind, {{ bubbles: true }})); }})()",
            json!(selector),
            json!(value)
        ));
    }

    /// Chooses a file.
    pub fn upload(&mut self, selector: &str, file: &Path) {
        let expression = format!("document.querySelector({})", json!(selector));
        let object = self.call("Runtime.evaluate", &json!({ "expression": expression }));
        let parameters = json!({ "files": [file], "objectId": object["result"]["objectId"] });
        self.call("DOM.setFileInputFiles", &parameters);
    }

    /// Returns the errors of all pages so far.
    pub fn errors(&self) -> &[String] {
        &self.errors
    }
}
