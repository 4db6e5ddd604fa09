//! The page of `ledger ui`: who is let in, what it answers, and what a person sees and does.

use crate::devtools::Page;
use crate::pictures::evil;
use crate::sandbox::{Sandbox, WORKER};
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::{Child, Stdio};

/// A server of a sandbox's ledger. It is gone with this value.
struct Served {
    child: Child,
    address: String,
    host: String,
    token: String,
}

impl Served {
    fn new(sandbox: &Sandbox) -> Self {
        let mut child = sandbox.command(&["ui", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut said = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        while !said.ends_with("}\n") {
            assert_ne!(out.read_line(&mut said).unwrap(), 0, "{said}");
        }
        let document: Value = serde_json::from_str(&said).unwrap();
        let address = document["address"].as_str().unwrap().to_owned();
        let (host, token) = address.strip_prefix("http://").unwrap().split_once("/?token=").unwrap();
        Self { host: host.to_owned(), token: token.to_owned(), child, address }
    }

    /// Sends a request as it stands, and gives the answer.
    fn send(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8(answer).unwrap()
    }

    fn get(&self, path: &str, headers: &[(&str, &str)]) -> String {
        let host = ("host", self.host.as_str());
        let given = headers.iter().any(|(name, _)| *name == "host");
        let headers = headers.iter().copied().chain((!given).then_some(host));
        let headers: String = headers.map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        self.send(&format!("GET {path} HTTP/1.1\r\nconnection: close\r\n{headers}\r\n"))
    }

    /// The cookie that the token is exchanged for.
    fn cookie(&self) -> String {
        let answer = self.get(&format!("/?token={}", self.token), &[]);
        let line =
            answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap_or_else(|| panic!("{answer}"));
        assert!(line.ends_with("; HttpOnly; SameSite=Strict; Path=/"), "{line}");
        line.split(';').next().unwrap().to_owned()
    }

    fn api(&self, question: &str) -> (u32, Value) {
        let answer = self.get(&format!("/api/{question}"), &[("cookie", &self.cookie())]);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head[9..12].parse().unwrap(), serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}")))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn status(answer: &str) -> &str {
    answer.get(9..12).unwrap_or(answer)
}

fn swept() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "[1, 2, 3]", "[1, 2]");
    sandbox.run(&["run", "m.toml"]).expect(0);
    sandbox
}

#[test]
fn nobody_is_let_in_without_the_token_or_under_another_name() {
    let sandbox = swept();
    let served = Served::new(&sandbox);
    let cookie = served.cookie();
    let own = ("cookie", cookie.as_str());
    assert_eq!(status(&served.get("/api/ls", &[own])), "200");
    let last = if cookie.ends_with('0') { '1' } else { '0' };
    let other = format!("{}{last}", &cookie[..cookie.len() - 1]);
    for (path, headers, code) in [
        ("/", vec![], "401"),
        ("/?token=0", vec![], "401"),
        ("/api/ls", vec![], "401"),
        ("/main.js", vec![], "401"),
        ("/api/ls", vec![("cookie", other.as_str())], "401"),
        // A forwarded port has another number.
        ("/api/ls", vec![own, ("host", "localhost:8080")], "200"),
        ("/api/ls", vec![own, ("host", "evil.example")], "403"),
        ("/api/ls", vec![own, ("origin", "http://evil.example")], "403"),
        ("/api/ls", vec![own, ("sec-fetch-site", "cross-site")], "403"),
        ("/../../../../etc/passwd", vec![own], "404"),
        ("/%2e%2e/ledger.redb", vec![own], "404"),
        ("/ledger.redb", vec![own], "404"),
        // What writes, runs, or reads files is no question.
        ("/api/run?id=m.toml", vec![own], "404"),
        ("/api/hide?id=latest", vec![own], "404"),
        ("/api/export?id=latest", vec![own], "404"),
        ("/api/telemetry?id=latest&plot=x.svg", vec![own], "400"),
        ("/api/ls?ledger=%2Ftmp", vec![own], "400"),
    ] {
        let answer = served.get(path, &headers);
        assert_eq!(status(&answer), code, "{path} {headers:?}: {answer}");
        for header in
            ["content-security-policy: default-src 'none'", "referrer-policy: no-referrer", "nosniff", "no-store"]
        {
            assert!(answer.contains(header), "{path}: {answer}");
        }
    }
    let post =
        format!("POST /api/ls HTTP/1.1\r\nhost: {}\r\ncookie: {cookie}\r\nconnection: close\r\n\r\n", served.host);
    assert_eq!(status(&served.send(&post)), "405");
    assert_eq!(status(&served.send("nonsense\r\n\r\n")), "400");
}

#[test]
fn answers_are_those_of_the_commands() {
    let sandbox = swept();
    let served = Served::new(&sandbox);
    let questions = [
        (
            "ls?limit=2&skip=1&sort=-accuracy&columns=x&where=x%20%3E%201",
            vec!["ls", "-n", "2", "--skip", "1", "--sort=-accuracy", "--columns", "x", "--where", "x > 1"],
        ),
        ("best?model=toy&metric=accuracy", vec!["best", "--model", "toy", "--metric", "accuracy"]),
        ("show?id=latest", vec!["show", "latest"]),
        ("effects?model=toy&metric=accuracy", vec!["effects", "--model", "toy", "--metric", "accuracy"]),
        ("diff?a=latest&b=latest~1", vec!["diff", "latest", "latest~1"]),
    ];
    for (question, command) in questions {
        // Two that differ are a "no" of `diff`.
        let code = i32::from(command[0] == "diff");
        assert_eq!(served.api(question), (200, sandbox.json(&command, code)), "{question}");
    }
    let (code, refused) = served.api("ls?where=bacth%20%3D%3D%201");
    assert_eq!(code, 400);
    assert!(refused["error"]["message"].as_str().unwrap().contains("unknown name `bacth`"), "{refused}");
    let (code, missing) = served.api("show?id=none");
    assert!(code == 200 && missing["error"]["message"].as_str().unwrap().contains("none"), "{missing}");
    assert_eq!(served.api("names").1["models"], serde_json::json!(["toy"]));
    // What to type for the same.
    let answer = served.get("/api/best?model=toy&metric=accuracy", &[("cookie", &served.cookie())]);
    assert!(answer.contains("best%20--model=toy%20--metric=accuracy\r\n"), "{answer}");
}

#[test]
fn the_page_is_small_and_comes_compressed() {
    let sandbox = swept();
    let served = Served::new(&sandbox);
    let cookie = served.cookie();
    let index = served.get("/", &[("cookie", &cookie)]);
    assert!(index.contains("<script type=\"module\" src=\"/main.js\">"), "{index}");
    let mut stream = TcpStream::connect(&served.host).unwrap();
    let request = format!(
        "GET /chart.js HTTP/1.1\r\nhost: {}\r\ncookie: {cookie}\r\naccept-encoding: gzip\r\nconnection: close\r\n\r\n",
        served.host
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    assert!(
        String::from_utf8_lossy(&answer).contains("content-encoding: gzip") && answer.len() < 8_000,
        "{}",
        answer.len()
    );
}

#[test]
fn a_socket_is_its_owners_alone_and_an_idle_server_ends() {
    let sandbox = swept();
    let path = sandbox.path("ui.sock");
    let mut child =
        sandbox.command(&["ui", "--socket", "ui.sock", "--idle", "0.02"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert!(said.contains("ui.sock"), "{said}");
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: localhost:8080\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert_eq!(status(&answer), "401");
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!path.exists());
    sandbox.write("ui.sock", "a file");
    assert!(sandbox.run(&["ui", "--socket", "ui.sock"]).complaint(2).contains("cannot listen on"));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file");
}

/// A worker that goes on until a file is there.
const PATIENT: &str = "echo '{\"event\":\"step\",\"step\":1,\"values\":{\"loss\":0.5}}' >> \"$LEDGER_EVENTS\"\n\
    while [ ! -e go ]; do sleep 0.05; done\n";

#[test]
fn a_page_is_told_of_an_attempt_that_starts_and_ends() {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "[1]", "[1]");
    sandbox.run(&["run", "m.toml"]).expect(0);
    let served = Served::new(&sandbox);
    let mut stream = TcpStream::connect(&served.host).unwrap();
    let request = format!("GET /api/live HTTP/1.1\r\nhost: {}\r\ncookie: {}\r\n\r\n", served.host, served.cookie());
    stream.write_all(request.as_bytes()).unwrap();
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let mut until = |text: &str| lines.by_ref().find(|line| line.contains(text)).unwrap();
    until("\"total\": 1");
    sandbox.sweep_manifest(PATIENT, "[7]", "[1]");
    let run = sandbox.start(&["run", "m.toml"]);
    let told = until("\"loss\": 0.5");
    assert!(told.starts_with("data: {") && told.contains("\"step\": 1"), "{told}");
    // It stands before the others, except where a condition asks what is not known of it yet.
    let running = |more: &[&str]| sandbox.json(&[&["ls"], more].concat(), 0)["running"].as_array().unwrap().len();
    assert_eq!([running(&[]), running(&["--model", "toy"]), running(&["--model", "other"])], [1, 1, 0]);
    assert_eq!([running(&["--where", "x == 7"]), running(&["--outcome", "failed"])], [0, 0]);
    sandbox.write("go", "");
    until("\"total\": 2");
    assert_eq!(Sandbox::finish(run).code, Some(0));
}

const ROW: &str = "document.querySelector('.rows tbody td a')";

#[test]
fn a_person_filters_sorts_and_compares() {
    let Some(mut page) = Page::open(1400, false) else { return };
    let sandbox = swept();
    let served = Served::new(&sandbox);
    page.visit(&served.address);
    page.wait(ROW);
    // Names are completed, and the filter is the language of `--where`.
    page.click("document.querySelector('[role=search] input')");
    page.write("accu");
    page.wait("document.querySelector('.choices:not([hidden]) li')?.textContent === 'accuracy'");
    page.press("ArrowDown", 40);
    page.press("Enter", 13);
    page.write(" > 0.2");
    page.press("Enter", 13);
    page.wait("document.body.innerText.includes('4 of 6 attempts match')");
    assert!(page.value("location.hash").as_str().unwrap().contains("where=accuracy"));
    let column =
        "[...document.querySelectorAll('.rows tbody tr:not(.space)')].map(row => Number(row.cells[9].textContent))";
    page.click("[...document.querySelectorAll('.rows th button')].find(head => head.textContent === 'accuracy')");
    page.wait(&format!("{column}[0] === 0.32"));
    assert_eq!(page.value(column), serde_json::json!([0.32, 0.31, 0.22, 0.21]));
    page.click("document.querySelectorAll('.rows tbody input')[0]");
    page.click("document.querySelectorAll('.rows tbody input')[2]");
    page.click("[...document.querySelectorAll('button')].find(one => one.textContent === 'Compare 2 selected')");
    page.wait("document.querySelector('h1').textContent === 'Compare 2 attempts' && document.querySelector('canvas')");
    assert!(page.value("document.body.innerText").as_str().unwrap().contains("second against first"));
    // Attempts that differ in their seeds alone are one band, or a line each.
    let of_three = sandbox.json(&["ls", "--where", "x == 3"], 0);
    let ids: Vec<&str> =
        of_three["attempts"].as_array().unwrap().iter().map(|one| one["attempt"].as_str().unwrap()).collect();
    page.value(&format!("location.hash = '#/compare/{}'", ids.join(",")));
    let key = "[...document.querySelector('.key').children].map(line => line.textContent.trim())";
    page.wait(&format!("document.querySelector('.key') && {key}.join() === 'mean (n = 2)'"));
    page.click("[...document.querySelectorAll('label')].find(one => one.textContent === 'Seeds as a band')");
    page.wait(&format!("{key}.length === 2"));
    assert_eq!(page.complaints(), Vec::<String>::new());
    // A mistake is shown with its place.
    let address = format!("http://{}/#/runs?where=bacth+%3D%3D+1", served.host);
    page.visit(&address);
    page.wait("document.querySelector('[role=alert]')?.textContent.includes('^^^^^')");
}

#[test]
fn answers_are_prepared_while_nothing_runs() {
    let Some(mut page) = Page::open(1400, false) else { return };
    let sandbox = swept();
    let served = Served::new(&sandbox);
    page.visit(&served.address);
    page.wait(ROW);
    let asked = "performance.getEntriesByType('resource').map(one => new URL(one.name).pathname.slice(5))";
    page.wait(&format!("['best', 'pareto', 'effects'].every(one => {asked}.includes(one))"));
    assert_eq!(page.value("document.querySelector('h1').textContent"), "Runs");
    // The page of answers asks the same questions.
    let all = "performance.getEntriesByType('resource').filter(one => /best|pareto|effects/.test(one.name)).map(one => one.name)";
    page.click("document.querySelector('nav a[href=\"#/answers\"]')");
    page.wait(&format!("{all}.length === 6"));
    let names = page.value(all);
    let names: std::collections::BTreeSet<_> =
        names.as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

#[test]
fn a_stretch_of_the_timeline_has_its_energy() {
    let Some(mut page) = Page::open(1400, false) else { return };
    let sandbox = Sandbox::new();
    crate::telemetry::import_of_a_gpu(&sandbox);
    let served = Served::new(&sandbox);
    page.visit(&served.address);
    page.wait(ROW);
    page.click(ROW);
    let power = "document.querySelector('section[aria-label=Power] canvas')";
    page.wait(power);
    page.wait(
        "document.querySelector('section[aria-label=Power] .only-read').textContent.includes('gpu.0.power_instant')",
    );
    page.drag(power, (0.3, 0.5), (0.8, 0.5));
    page.wait("/Energy: [\\d.]+ J ± [\\d.]+ J in [\\d.]+ s/.test(document.body.innerText)");
    // The card draws 200 W by its counter.
    let said = page
        .value("document.body.innerText.match(/Energy: ([\\d.]+) J ± [\\d.]+ J in ([\\d.]+) s/).slice(1).map(Number)");
    let (joules, seconds) = (said[0].as_f64().unwrap(), said[1].as_f64().unwrap());
    assert!((joules / seconds - 200.0).abs() < 8.0, "{said}");
    let curve = "document.querySelector('section[aria-label=loss] .only-read').textContent";
    page.wait(&format!("{curve}.includes('1.25')"));
    assert_eq!(page.complaints(), Vec::<String>::new());
}

#[test]
fn markup_in_names_is_text_and_pages_fit_a_phone_in_the_dark_and_screen_readers() {
    // The audit of axe-core, which no crate has.
    let axe = std::env::var_os("LEDGER_AXE").map(|path| std::fs::read_to_string(path).unwrap());
    if axe.is_none() {
        println!("accessibility is not audited: LEDGER_AXE does not name `axe.min.js` of axe-core");
    }
    let sandbox = evil();
    let served = Served::new(&sandbox);
    for (width, is_dark) in [(390, true), (1400, false)] {
        let Some(mut page) = Page::open(width, is_dark) else { return };
        page.visit(&served.address);
        page.wait(ROW);
        let run = page.value(&format!("{ROW}.hash"));
        let model = page.value("fetch('/api/names').then(answer => answer.json()).then(names => names.models[0])");
        let ids = page.value("fetch('/api/ls').then(answer => answer.json()).then(all => all.attempts.map(one => one.attempt).slice(0, 2).join(','))");
        let answers = page.value(&format!("'#/answers/' + encodeURIComponent({model})"));
        for hash in ["#/runs".into(), run, answers, format!("#/compare/{}", ids.as_str().unwrap()).into()] {
            page.value(&format!("location.hash = {hash}"));
            page.wait("!document.body.innerText.includes('Loading…')");
            let widest = page.value("document.documentElement.scrollWidth");
            assert!(widest.as_u64().unwrap() <= u64::from(width), "{hash} at {width}: {widest}");
            assert_eq!(page.value("[...document.querySelectorAll('script, img, iframe')].length"), 1, "{hash}");
            if let Some(axe) = &axe {
                page.value(axe);
                let found = "axe.run().then(all => all.violations.filter(one => one.impact !== 'minor').map(one => [one.impact, one.id, one.nodes[0].html]))";
                assert_eq!(page.value(found), serde_json::json!([]), "{hash} at {width}");
            }
        }
        let ground = page.value("getComputedStyle(document.documentElement).backgroundColor");
        assert_eq!(ground, if is_dark { "rgb(21, 24, 28)" } else { "rgb(255, 255, 255)" });
        assert!(page.value("document.title").as_str().unwrap().ends_with("– ledger"));
    }
}
