//! A browser that is driven as a person would, by Chromium's DevTools protocol over a pipe.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// One page. It is gone with this value.
pub struct Page {
    browser: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    number: u64,
    /// What scripts and the network complained of.
    complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Page {
    /// A page of that width; none where there is no Chromium, which is said.
    pub fn open(width: u32, is_dark: bool) -> Option<Self> {
        let program = crate::browser::chromium()?;
        let profile = tempfile::tempdir().unwrap();
        // The protocol's pipe is the third and the fourth file of the browser.
        let script = "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null";
        let mut browser = Command::new("sh")
            .args(["-c", script, program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--no-first-run", "--disable-extensions", "--disable-background-networking", "--disable-sync"])
            .args(["--disable-component-update", "--disable-quic", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (browser.stdin.take().unwrap(), BufReader::new(browser.stdout.take().unwrap()));
        let complaints = Vec::new();
        let mut page = Self { browser, to, from, session: None, number: 0, complaints, _profile: profile };
        let targets = page.ask("Target.getTargets", json!({}));
        let all = targets["targetInfos"].as_array().unwrap();
        let id = all.iter().find(|target| target["type"] == "page").unwrap()["targetId"].clone();
        let attached = page.ask("Target.attachToTarget", json!({ "targetId": id, "flatten": true }));
        page.session = Some(attached["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log"] {
            page.ask(&format!("{domain}.enable"), json!({}));
        }
        let metrics = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600 });
        page.ask("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = json!([{ "name": "prefers-color-scheme", "value": if is_dark { "dark" } else { "light" } }]);
        page.ask("Emulation.setEmulatedMedia", json!({ "features": scheme }));
        Some(page)
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut message = json!({ "id": self.number, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.to.write_all(format!("{message}\0").as_bytes()).unwrap();
        self.to.flush().unwrap();
        loop {
            let mut bytes = Vec::new();
            self.from.read_until(0, &mut bytes).unwrap();
            bytes.pop();
            let said: Value = serde_json::from_slice(&bytes).unwrap();
            if said["id"] == self.number {
                assert!(said["error"].is_null(), "{method}: {said}");
                return said["result"].clone();
            }
            let is_console = said["method"] == "Runtime.consoleAPICalled" && said["params"]["type"] == "error";
            if is_console || said["method"] == "Runtime.exceptionThrown" || said["method"] == "Log.entryAdded" {
                self.complaints.push(said["params"].to_string());
            }
        }
    }

    pub fn visit(&mut self, address: &str) {
        self.ask("Page.navigate", json!({ "url": address }));
    }

    /// The value of an expression of JavaScript.
    pub fn value(&mut self, script: &str) -> Value {
        let params = json!({ "expression": script, "awaitPromise": true, "returnByValue": true });
        let said = self.ask("Runtime.evaluate", params);
        assert!(said["exceptionDetails"].is_null(), "{script}: {said}");
        said["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub fn wait(&mut self, script: &str) {
        let start = Instant::now();
        // A page that is being replaced has no values for a moment.
        let script = format!("(() => {{ try {{ return Boolean({script}); }} catch {{ return false; }} }})()");
        while self.value(&script) != true {
            let text = || "document.body.innerText.slice(0, 2000)";
            assert!(start.elapsed() < Duration::from_secs(60), "{script}: {}", self.value(text()));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn mouse(&mut self, kind: &str, (x, y): (f64, f64)) {
        let buttons = if kind == "mouseReleased" { 0 } else { 1 };
        let params = json!({ "type": kind, "x": x, "y": y, "button": "left", "buttons": buttons, "clickCount": 1 });
        self.ask("Input.dispatchMouseEvent", params);
    }

    /// Brings an element into sight and gives a place in it, by shares of its width and height.
    fn place(&mut self, element: &str, (across, down): (f64, f64)) -> (f64, f64) {
        let script = format!(
            "(() => {{ const e = {element}; e.scrollIntoView({{ block: 'center' }}); const b = e.getBoundingClientRect(); \
             return [b.left + b.width * {across}, b.top + b.height * {down}]; }})()"
        );
        let found = self.value(&script);
        (found[0].as_f64().unwrap(), found[1].as_f64().unwrap())
    }

    pub fn click(&mut self, element: &str) {
        let place = self.place(element, (0.5, 0.5));
        self.mouse("mousePressed", place);
        self.mouse("mouseReleased", place);
    }

    /// Drags over an element, from one share of its width and height to another.
    pub fn drag(&mut self, element: &str, from: (f64, f64), to: (f64, f64)) {
        let (start, end) = (self.place(element, from), self.place(element, to));
        self.mouse("mousePressed", start);
        self.mouse("mouseMoved", ((start.0 + end.0) / 2.0, (start.1 + end.1) / 2.0));
        self.mouse("mouseMoved", end);
        self.mouse("mouseReleased", end);
    }

    pub fn write(&mut self, text: &str) {
        self.ask("Input.insertText", json!({ "text": text }));
    }

    pub fn press(&mut self, key: &str, code: u32) {
        for kind in ["keyDown", "keyUp"] {
            let params = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            self.ask("Input.dispatchKeyEvent", params);
        }
    }

    /// What scripts and the network complained of so far.
    pub fn complaints(&mut self) -> Vec<String> {
        self.value("1");
        std::mem::take(&mut self.complaints)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // It has no window to be closed by.
        let _ = self.browser.kill();
        let _ = self.browser.wait();
    }
}
