//! Pictures and reports: what stands in them, in each form.

use crate::sandbox::{Sandbox, WORKER, repository};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub fn sealed() -> Sandbox {
    let sandbox = Sandbox::new();
    sandbox.sweep_manifest(WORKER, "[1, 2, 3]", "[1, 2]");
    sandbox.run(&["run", "m.toml"]).expect(0);
    sandbox
}

/// Ids differ from ledger to ledger.
fn steady(text: &str) -> String {
    let is_id = |word: &str| word.len() == 8 && word.chars().all(|c| c.is_ascii_hexdigit());
    let shown = |line: &str| {
        let words: Vec<&str> = line.split(' ').map(|word| if is_id(word) { "<id>    " } else { word }).collect();
        words.join(" ").trim_end().to_owned()
    };
    text.lines().map(shown).collect::<Vec<_>>().join("\n")
}

const QUESTION: [&str; 4] = ["--model", "toy", "--metric", "loss"];

/// The kinds of pictures of that sweep, with the arguments of each.
fn kinds() -> Vec<(&'static str, Vec<&'static str>)> {
    let of = |more: &[&'static str]| QUESTION.iter().chain(more).copied().collect::<Vec<_>>();
    vec![
        ("curves", vec!["latest", "latest~2"]),
        ("scaling", of(&["--axis", "x"])),
        ("effects", of(&[])),
        ("pareto", vec!["--model", "toy", "--metrics", "loss,accuracy"]),
        ("distribution", of(&["--by", "x"])),
        ("heat", of(&["--x", "x", "--y", "seed"])),
    ]
}

#[test]
fn pictures_are_drawn_on_the_terminal_where_no_file_is_named() {
    let sandbox = sealed();
    let plot = |kind: &str, args: &[&str]| steady(&sandbox.run(&[&["plot", kind], args].concat()).expect(0));
    let heat = plot("heat", &["--model", "toy", "--metric", "loss", "--x", "x", "--y", "seed"]);
    insta::assert_snapshot!(heat, @r"
    toy: loss by x and seed

    seed \ x       1      2      3
    1         *104.0  204.0  304.0
    2          114.0  214.0  314.0

    * is the best one.
    loss (lower is better).
    ");
    let distribution = plot("distribution", &["--model", "toy", "--metric", "loss", "--by", "x"]);
    insta::assert_snapshot!(distribution, @r"
    toy: loss of 3 groups

    x 1 (n = 2) │                          ·●·
    x 2 (n = 2) │                                                  ·● ·
    x 3 (n = 2) │                                                                           ·●·
                └───────────────────────────────────────────────────────────────────────────────────
                 0                      100                      200                      300
                 loss (lower is better)
    · an attempt   ● the mean

    no interval is known: two values make none, nor does one attempt whose sensors state no error.
    ");
    assert_eq!(plot("heat", &["--model", "toy", "--metric", "loss", "--x", "x", "--y", "seed", "--plot=term"]), heat);
}

#[test]
fn every_kind_has_every_form() {
    let sandbox = sealed();
    for (kind, args) in kinds() {
        for ending in ["svg", "png", "csv"] {
            let file = format!("{kind}.{ending}");
            let ask = [&["plot", kind], args.as_slice(), &["-o", &file, "--width", "column"]].concat();
            let said = sandbox.run(&ask).expect(0);
            assert!(said.starts_with(&file), "{said}");
            let content = fs::read(sandbox.path(&file)).unwrap();
            match ending {
                "png" => assert!(content.starts_with(b"\x89PNG\r\n\x1a\n") && content.len() > 5000, "{kind}"),
                "svg" => {
                    let svg = String::from_utf8(content).unwrap();
                    assert!(svg.starts_with("<svg ") && svg.contains("width=\"85mm\""), "{kind}");
                    assert!(svg.contains("<title id=") && svg.contains("<desc id="), "{kind}");
                    assert!(!svg.contains("NaN") && !svg.contains("style="), "{kind}");
                }
                _ => assert!(String::from_utf8(content).unwrap().lines().count() > 2, "{kind}"),
            }
            assert!(sandbox.run(&ask).complaint(2).contains("--force"), "{kind}");
        }
        let document = sandbox.json(&[&["plot", kind], args.as_slice()].concat(), 0);
        assert!(!document["rows"].as_array().unwrap().is_empty(), "{kind}: {document}");
        assert!(document["rows"][0].as_array().unwrap().len() == document["columns"].as_array().unwrap().len());
    }
}

#[test]
fn a_picture_of_nothing_says_why() {
    let sandbox = sealed();
    let complaint = |args: &[&str], code| sandbox.run(&[&["plot"], args].concat()).complaint(code);
    assert!(complaint(&["energy", "latest"], 1).contains("there is nothing to draw: no energy of attempt"));
    assert!(complaint(&["scaling", "--model", "toy", "--metric", "loss"], 1).contains("nothing to draw"));
    assert!(complaint(&["heat", "--model", "toy", "--metric", "lost", "--x", "x", "--y", "seed"], 2).contains("loss"));
    assert!(
        complaint(&["heat", "--model", "toi", "--metric", "loss", "--x", "x", "--y", "seed"], 1)
            .contains("there are: toy")
    );
    let nine = [&["curves"], ["latest"; 9].as_slice()].concat();
    assert!(complaint(&nine, 2).contains("error: a plot shows at most 8 attempts"));
    assert!(complaint(&["curves", "latest", "--series", "lost"], 2).contains("did you mean `loss`"));
    assert!(complaint(&["curves", "latest", "-o", "a.jpg"], 2).contains("`.jpg` is not a plot format"));
    assert!(complaint(&["curves", "latest", "-o", "a.svg", "--width", "3"], 2).contains("millimetres"));
    assert!(!sandbox.path("a.svg").exists() && !sandbox.path("a.jpg").exists());
}

#[test]
fn the_csv_behind_a_picture_has_what_best_says() {
    let sandbox = sealed();
    sandbox.run(&[&["plot", "scaling"], QUESTION.as_slice(), &["--axis", "x", "-o", "s.csv"]].concat()).expect(0);
    let best = sandbox.json(&[&["best"], QUESTION.as_slice()].concat(), 0);
    let csv = fs::read_to_string(sandbox.path("s.csv")).unwrap();
    let rows: Vec<Vec<&str>> = csv.lines().skip(1).map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 3);
    for (row, place) in rows.iter().zip(best["places"].as_array().unwrap()) {
        let number = |at: usize| row[at].parse::<f64>().unwrap();
        assert_eq!(number(2), place["config"]["params.x"].as_f64().unwrap());
        assert_eq!(row[6], place["n"].to_string());
        assert_eq!(number(4), place["mean"].as_f64().unwrap());
        assert!((number(5) - place["half_width"].as_f64().unwrap()).abs() < 1e-9);
    }
}

/// Everything below a folder, by its path from there.
fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push((path.strip_prefix(folder).unwrap().to_owned(), fs::read(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn a_report_is_whole_and_every_link_in_it_leads_somewhere() {
    let sandbox = sealed();
    let said = sandbox.run(&["report", "m.toml", "-o", "site"]).expect(0);
    assert_eq!(said, "site/index.html (6 runs, 6 attempts)\n");
    let site = files(&sandbox.path("site"));
    let names: Vec<String> = site.iter().map(|(path, _)| path.to_string_lossy().into_owned()).collect();
    assert_eq!(names.iter().filter(|name| name.starts_with("runs/")).count(), 6);
    for name in [".ledger-report", "index.html", "report.md", "data/attempts.csv"] {
        assert!(names.iter().any(|there| there == name), "{name} {names:?}");
    }
    let mut links = 0;
    for (path, content) in site.iter().filter(|(path, _)| path.extension().is_some_and(|ending| ending == "html")) {
        let page = String::from_utf8(content.clone()).unwrap();
        for link in page.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = path.parent().unwrap().join(file);
            let target = target.to_string_lossy().replace("runs/../", "");
            let target = if file.is_empty() { path.to_string_lossy().into_owned() } else { target };
            let (_, there) = site.iter().find(|(path, _)| path.to_string_lossy() == target).expect(link);
            if !anchor.is_empty() {
                assert!(String::from_utf8_lossy(there).contains(&format!("id=\"{anchor}\"")), "{link} in {path:?}");
            }
            links += 1;
        }
        for outside in ["http://", "https://", "src=", "@import", "url(//"] {
            let mine = page.replace("http://www.w3.org/2000/svg", "");
            assert!(!mine.contains(outside), "{outside} in {path:?}");
        }
    }
    assert!(links > 50, "{links}");
    // The same ledger gives the same bytes.
    sandbox.run(&["report", "m.toml", "-o", "again"]).expect(0);
    assert!(files(&sandbox.path("again")) == site);
}

#[test]
fn a_report_replaces_reports_alone() {
    let sandbox = sealed();
    fs::create_dir(sandbox.path("mine")).unwrap();
    sandbox.write("mine/thesis.tex", "years of work");
    let complaint = sandbox.run(&["report", "--all", "-o", "mine"]).complaint(2);
    assert!(complaint.contains("is not a report, and is left unchanged (--force replaces it)"), "{complaint}");
    assert_eq!(files(&sandbox.path("mine")).len(), 1);
    sandbox.write("plain", "a file");
    assert!(sandbox.run(&["report", "--all", "-o", "plain", "--force"]).complaint(2).contains("is not a folder"));
    sandbox.run(&["report", "--model", "toy", "-o", "site"]).expect(0);
    // What the marker names goes, with the page of a run that is not in the new one.
    assert_eq!(fs::read_dir(sandbox.path("site/runs")).unwrap().count(), 6);
    sandbox.run(&["report", "--model", "toy", "--where", "x < 3", "-o", "site"]).expect(0);
    assert_eq!(fs::read_dir(sandbox.path("site/runs")).unwrap().count(), 4);
    // What is not of the report, or was changed, stays.
    fs::create_dir(sandbox.path("site/.git")).unwrap();
    sandbox.write("site/data/notes.txt", "mine");
    sandbox.write("site/report.md", "corrected by hand");
    let complaint = sandbox.run(&["report", "--model", "toy", "-o", "site"]).complaint(2);
    assert!(
        complaint.contains("since: `.git/`, `data/notes.txt`, `report.md` (--force removes them too)"),
        "{complaint}"
    );
    assert_eq!(fs::read_to_string(sandbox.path("site/data/notes.txt")).unwrap(), "mine");
    sandbox.run(&["report", "--model", "toy", "-o", "site", "--force"]).expect(0);
    assert!(!sandbox.path("site/.git").exists() && !sandbox.path("site/data/notes.txt").exists());
    // Neither the folder that one stands in nor the ledger is replaced, whatever is asked for.
    let refused = |place: &str| sandbox.run(&["report", "--all", "-o", place, "--force"]).complaint(2);
    assert!(refused(".").contains("is or holds the current folder"));
    assert!(refused("ledger").contains("is or holds the ledger"));
    assert!(
        sandbox
            .run(&["report", "--all", "-o", "ledger/journal/..", "--force"])
            .err
            .contains("it has no name of its own")
    );
    assert!(sandbox.path("m.toml").exists() && sandbox.path("ledger/ledger.redb").exists());
    // What fails leaves nothing behind, and the report that was there as it was.
    let before = files(&sandbox.path("site"));
    sandbox.run(&["report", "--all", "--metrics", "nonsense", "-o", "site"]).complaint(2);
    sandbox.run(&["report", "--model", "nobody", "-o", "site"]).complaint(1);
    assert!(files(&sandbox.path("site")) == before);
    let hidden = fs::read_dir(sandbox.path(".")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!hidden.into_iter().any(|name| name.to_string_lossy().starts_with(".site")), "a folder was left behind");
}

const EVIL: &str = r#"<script>document.title='pwned'</script><img src=x onerror=alert(1)>"&'"#;

/// A ledger in which everything that a person or a worker may write tries to be a script.
pub fn evil() -> Sandbox {
    let sandbox = Sandbox::new();
    let worker = r#"
printf '%s\n' '{"event":"fact","name":"remark","value":"<script>document.title=1</script>"}' >> "$LEDGER_EVENTS"
printf '%s\n' '{"event":"metric","name":"<b>score</b>","value":1.5}' >> "$LEDGER_EVENTS"
printf '%s\n' '{"event":"step","step":7,"values":{"loss":1.0,"<i>aux</i>":2.0}}' >> "$LEDGER_EVENTS"
printf '%s\n' '{"event":"step","step":8,"values":{"loss":0.5,"<i>aux</i>":1.0}}' >> "$LEDGER_EVENTS"
echo '<script>alert(2)</script>' >&2
[ "$1" = 2 ] && exit 3
"#;
    sandbox.sweep_manifest(&format!("{WORKER}{worker}exit 0\n"), "[1, 2, 3]", "1");
    let manifest = fs::read_to_string(sandbox.path("m.toml")).unwrap();
    let manifest = manifest.replace("[params]\n", "[params]\nword = '<script>document.title=3</script>'\n");
    let manifest = manifest.replace("name = \"toy\"\nseed", &format!("name = 'toy'\ndescription = '''{EVIL}'''\nseed"));
    sandbox.write("m.toml", manifest);
    sandbox.run(&["run", "m.toml"]);
    sandbox.run(&["note", "latest", EVIL]).expect(0);
    sandbox
}

#[test]
fn what_people_and_workers_write_is_text_in_a_report() {
    let sandbox = evil();
    sandbox.run(&["report", "m.toml", "-o", "site", "--title", EVIL]).expect(0);
    let site = files(&sandbox.path("site"));
    let mut shown = 0;
    for (path, content) in site.iter().filter(|(path, _)| path.extension().is_some_and(|ending| ending == "html")) {
        let page = String::from_utf8(content.clone()).unwrap();
        assert_eq!(page.matches("<script").count(), 1, "{path:?}");
        for tag in ["<img", "<b>", "<i>", "onerror=alert(1)>\""] {
            assert!(!page.contains(tag), "{tag} in {path:?}");
        }
        shown += page.matches("&lt;script&gt;").count();
    }
    assert!(shown > 6, "{shown}");
    let markdown = fs::read_to_string(sandbox.path("site/report.md")).unwrap();
    assert!(!markdown.replace("\\<", "").contains('<'), "{markdown}");
    sandbox.run(&["plot", "curves", "latest", "-o", "evil.svg"]).expect(0);
    let svg = fs::read_to_string(sandbox.path("evil.svg")).unwrap();
    assert!(svg.contains("&lt;i&gt;aux&lt;/i&gt;") && !svg.contains("<i>") && !svg.contains("<script"));
}

/// The policy of the pages names the style and the script by their digests: an outdated one would switch them off.
#[test]
fn the_policy_of_the_pages_lets_their_own_script_run() {
    let frame = fs::read_to_string(repository("src/report/site/html.rs")).unwrap();
    for name in ["style.css", "script.js"] {
        let path = repository("src/report/site").join(name);
        let said = Command::new("sha256sum").arg(&path).output().unwrap();
        let digest = String::from_utf8(said.stdout).unwrap();
        let bytes: Vec<u8> = (0..32).map(|at| u8::from_str_radix(&digest[2 * at..2 * at + 2], 16).unwrap()).collect();
        assert!(frame.contains(&base64(&bytes)), "html.rs has to say {} of {name}", base64(&bytes));
    }
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let of = |chunk: &[u8]| {
        let at = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let all = at(0) << 16 | at(1) << 8 | at(2);
        let letter =
            |i: usize| if i <= chunk.len() { char::from(LETTERS[(all >> (18 - 6 * i) & 63) as usize]) } else { '=' };
        (0..4).map(letter).collect::<String>()
    };
    bytes.chunks(3).map(of).collect()
}

#[test]
fn pictures_of_the_documentation_are_what_the_program_draws() {
    let script = Command::new(repository("docs/pictures/draw.sh"))
        .args(["--check", env!("CARGO_BIN_EXE_ledger")])
        .output()
        .unwrap();
    assert!(script.status.success(), "{}", String::from_utf8_lossy(&script.stderr));
}

#[test]
fn the_recorded_session_of_the_documentation_has_what_the_program_prints() {
    let script = Command::new("python3")
        .arg(repository("docs/pictures/record.py"))
        .args(["--check", env!("CARGO_BIN_EXE_ledger")])
        .output()
        .unwrap();
    assert!(script.status.success(), "{}", String::from_utf8_lossy(&script.stderr));
}
