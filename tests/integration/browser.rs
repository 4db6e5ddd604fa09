//! Reports in a real browser: Chromium without a window, where it is installed.

use crate::pictures::evil;
use crate::sandbox::{Sandbox, WORKER};
use std::io::Write;
use std::path::Path;
use std::process::Command;

/// A browser that is asked for one page at a time; none where it is not installed, which is said.
struct Browser {
    program: &'static str,
    profile: tempfile::TempDir,
}

/// The browser that is installed; without one that is said.
pub fn chromium() -> Option<&'static str> {
    let known = ["chromium", "chromium-browser", "google-chrome", "chromium-headless-shell"];
    let runs = |name: &&str| Command::new(name).arg("--version").output().is_ok_and(|said| said.status.success());
    let found = known.into_iter().find(runs);
    if found.is_none() {
        // Nobody is left to tell if standard error is closed.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: no Chromium here (`apt-get install --no-install-recommends chromium`)"
        );
    }
    found
}

impl Browser {
    fn find() -> Option<Self> {
        Some(Self { program: chromium()?, profile: tempfile::tempdir().unwrap() })
    }

    /// What the browser prints of a page, and whether it asked the network for anything.
    fn ask(&self, page: &Path, more: &[&str]) -> (String, bool) {
        let log = self.profile.path().join("net.json");
        let output = Command::new(self.program)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-extensions", "--disable-background-networking", "--disable-sync"])
            .args(["--disable-component-update", "--virtual-time-budget=3000", "--window-size=1000,800"])
            .arg(format!("--user-data-dir={}", self.profile.path().join("profile").display()))
            .arg(format!("--log-net-log={}", log.display()))
            .args(more)
            .arg(format!("file://{}", page.display()))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let net = std::fs::read_to_string(&log).unwrap_or_default();
        let page_asks = net.contains("\"initiator\":\"null\"") || net.contains("\"initiator\":\"file://");
        let asked = page_asks && (net.contains("\"url\":\"http://") || net.contains("\"url\":\"https://"));
        (String::from_utf8_lossy(&output.stdout).into_owned(), asked)
    }
}

/// A copy of a page whose script is followed by another one that acts as a reader does. The policy is what would forbid it, so it goes.
fn acted(page: &Path, script: &str) -> std::path::PathBuf {
    let text = std::fs::read_to_string(page).unwrap();
    let policy = text.split("<meta http-equiv").nth(1).unwrap().split('>').next().unwrap();
    let text = text.replace(&format!("<meta http-equiv{policy}>"), "");
    let text = text.replace("</body>", &format!("<script>{script}</script></body>"));
    let copy = page.with_file_name("acted.html");
    std::fs::write(&copy, text).unwrap();
    copy
}

#[test]
fn tables_sort_and_filter_and_nothing_is_asked_of_the_network() {
    let Some(browser) = Browser::find() else { return };
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "[1, 2, 3]", "[1, 2]");
    sandbox.run(&["run", "m.toml"]).expect(0);
    sandbox.run(&["report", "--all", "-o", "site"]).expect(0);
    let page = sandbox.path("site/index.html");
    let control = sandbox.write("control.html", "<p>text</p><img src=\"http://127.0.0.1:9/a.png\" alt=\"\">");
    assert!(browser.ask(&control, &["--dump-dom"]).1, "a request would not be seen");
    // The page's own script runs under the page's own policy.
    let (dom, asked) = browser.ask(&page, &["--dump-dom"]);
    assert!(dom.contains("Show rows with all of these words") && dom.contains("<button type=\"button\">"), "{dom}");
    assert!(!asked, "the page asked the network");
    let heads = |dom: &str| {
        let table = dom.split("<table id=\"t-attempts\"").nth(1).unwrap().split("</thead>").next().unwrap().to_owned();
        table.split("<th ").skip(1).position(|head| head.contains("loss")).unwrap()
    };
    let at = heads(&dom);
    let click = |times: usize| {
        format!(
            "const b = document.querySelectorAll('#t-attempts thead button')[{at}]; for (let i = 0; i < {times}; i++) b.click();"
        )
    };
    let column = |dom: &str| -> Vec<f64> {
        let body = dom.split("<table id=\"t-attempts\"").nth(1).unwrap().split("</table>").next().unwrap().to_owned();
        let rows = body.split("<tbody>").nth(1).unwrap().split("<tr").skip(1).map(str::to_owned).collect::<Vec<_>>();
        let rows = rows.iter().filter(|row| !row.starts_with(" hidden"));
        let field = |row: &String| {
            row.split("data-v=\"").map(|rest| rest.split('"').next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        rows.map(|row| field(row)[3].parse().unwrap()).collect()
    };
    let up = column(&browser.ask(&acted(&page, &click(1)), &["--dump-dom"]).0);
    assert_eq!(up.len(), 6);
    assert!(up.is_sorted(), "{up:?}");
    let down = column(&browser.ask(&acted(&page, &click(2)), &["--dump-dom"]).0);
    assert_eq!(down, up.iter().rev().copied().collect::<Vec<_>>());
    // By the name of a row's run: numbers stand in other rows' names too.
    let filter = "const i = document.querySelector('.filter input'); \
                  const row = [...document.querySelectorAll('#t-attempts tbody tr')].find(r => r.querySelector('[data-v=\"304.0\"]')); \
                  i.value = row.querySelector('a').textContent; i.dispatchEvent(new Event('input'));";
    let dom = browser.ask(&acted(&page, filter), &["--dump-dom"]).0;
    assert_eq!(column(&dom), [304.0]);
    assert!(dom.contains("1 of 6 rows"));
}

#[test]
fn a_page_prints_and_scripts_in_records_do_not_run() {
    let Some(browser) = Browser::find() else { return };
    let sandbox = evil();
    sandbox.run(&["report", "--all", "-o", "site"]).expect(0);
    let mut pages = vec![sandbox.path("site/index.html")];
    pages.extend(std::fs::read_dir(sandbox.path("site/runs")).unwrap().map(|entry| entry.unwrap().path()));
    for page in &pages {
        let (dom, asked) = browser.ask(page, &["--dump-dom"]);
        let title = dom.split("<title>").nth(1).unwrap().split("</title>").next().unwrap();
        assert!(title.starts_with("All runs") || title.starts_with("Run "), "{title}");
        assert!(!asked, "{page:?} asked the network");
    }
    let pdf = sandbox.path("page.pdf");
    browser.ask(&pages[0], &[&format!("--print-to-pdf={}", pdf.display())]);
    let pdf = std::fs::read(pdf).unwrap();
    assert!(pdf.starts_with(b"%PDF-") && pdf.len() > 10_000);
}

#[test]
fn pages_fit_a_phone_and_follow_the_colour_scheme() {
    let Some(browser) = Browser::find() else { return };
    let sandbox = evil();
    let campaign = concat!(env!("CARGO_MANIFEST_DIR"), "/ledger/reference/campaign/resnet50-h100.ledger");
    sandbox.run(&["unpack", campaign]).expect(0);
    sandbox.run(&["report", "--all", "-o", "site"]).expect(0);
    let mut pages = vec![sandbox.path("site/index.html")];
    pages.extend(std::fs::read_dir(sandbox.path("site/runs")).unwrap().map(|entry| entry.unwrap().path()));
    // Whatever scrolls by itself may be wider than the page.
    let measure = "document.documentElement.style.width = '390px'; \
        const wide = [...document.querySelectorAll('main *, h1, footer, nav')].filter(e => !e.closest('.wide, pre, svg')); \
        const worst = Math.max(...wide.map(e => e.getBoundingClientRect().right)); \
        document.title = 'width ' + Math.ceil(worst) + ' on ' + getComputedStyle(document.body).backgroundColor;";
    let title = |page: &Path, scheme: &str| {
        let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
        let (dom, _) = browser.ask(&acted(page, measure), &["--dump-dom", &scheme]);
        dom.split("<title>").nth(1).unwrap().split("</title>").next().unwrap().to_owned()
    };
    for page in pages.iter().take(2) {
        let (light, dark) = (title(page, "1"), title(page, "0"));
        let width: u32 = light.split(' ').nth(1).and_then(|width| width.parse().ok()).unwrap();
        assert!(width <= 390, "{page:?}: {light}");
        assert!(light.ends_with("rgb(255, 255, 255)") && dark.ends_with("rgb(21, 24, 28)"), "{light}, {dark}");
    }
}
