//! README, docs and help: links lead somewhere, sentences are short, and worn-out phrases stay away.

use crate::sandbox::{Sandbox, repository};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The largest number of words of a sentence in documentation.
const MOST_WORDS: usize = 30;

/// The largest number of words of a sentence in help and messages.
const MOST_WORDS_SAID: usize = 25;

/// Phrases that a reader has to translate, and what to write instead.
const PHRASES: &[(&str, &str)] = &[
    ("told from chance", "no significant difference (p = …)"),
    ("bring home", "import"),
    ("brings home", "imports"),
    ("hand over", "submit"),
    ("handed over", "submitted"),
    ("of no account", "within tolerance"),
    ("nobody", "name the actor"),
    ("Whoever", "name the actor"),
];

/// Pages that are records of a day: nothing in them is rewritten.
const RECORDS: &str = "docs/measurements";

fn pages() -> Vec<PathBuf> {
    fn below(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                below(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    let mut found: Vec<PathBuf> = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(repository).into();
    below(&repository("docs"), &mut found);
    found.sort();
    found
}

/// The lines of a page outside of its code.
fn prose(text: &str) -> Vec<&str> {
    let mut is_code = false;
    let mut found = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
            found.push("");
        } else if !is_code && !line.starts_with("    ") {
            found.push(line);
        }
    }
    found
}

/// Paragraphs, items of lists and options, each as one line.
fn paragraphs(lines: &[&str]) -> Vec<String> {
    let mut found = vec![String::new()];
    for line in lines.iter().map(|line| line.trim()) {
        let is_apart = line.is_empty() || ["|", "#", "<!--", "!["].iter().any(|start| line.starts_with(start));
        let item = line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(['-', '*', '.']);
        if is_apart || (item.starts_with(' ') && item != line) || line.starts_with("--") {
            found.push(String::new());
        }
        if !is_apart {
            let last = found.last_mut().unwrap();
            last.push_str(if item.starts_with(' ') && item != line { item } else { line });
            last.push(' ');
        }
    }
    found
}

/// Sentences with more words than `most`: what stands in backquotes and the target of a link are one word.
fn long_sentences(paragraph: &str, most: usize) -> Vec<String> {
    let mut plain = String::new();
    let mut rest = paragraph;
    while let Some((before, after)) = rest.split_once('`') {
        plain.push_str(before);
        plain.push('x');
        rest = after.split_once('`').map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    let mut sentences = vec![Vec::new()];
    let words: Vec<&str> = plain.split_whitespace().collect();
    for (at, word) in words.iter().enumerate() {
        sentences.last_mut().unwrap().push(*word);
        let ends = word.trim_end_matches([')', '*', '"', '”']).ends_with(['.', '?', '!', ':', ';']);
        let next = words.get(at + 1).and_then(|next| next.trim_start_matches(['*', '(', '[', '"', '“']).chars().next());
        if ends && next.is_some_and(|c| c.is_uppercase() || c == 'x' || c.is_ascii_digit()) {
            sentences.push(Vec::new());
        }
    }
    sentences.into_iter().filter(|words| words.len() > most).map(|words| words.join(" ")).collect()
}

fn faults(name: &str, text: &str, most: usize) -> Vec<String> {
    let lines = prose(text);
    let phrases = PHRASES.iter().filter(|(phrase, _)| lines.iter().any(|line| line.contains(phrase)));
    let phrases = phrases.map(|(phrase, better)| format!("{name}: `{phrase}` ({better})"));
    let all = paragraphs(&lines);
    let long = all.iter().flat_map(|paragraph| long_sentences(paragraph, most));
    phrases.chain(long.map(|sentence| format!("{name}: more than {most} words: {sentence}"))).collect()
}

#[test]
fn long_sentences_and_worn_out_phrases_are_found() {
    let long = "word ".repeat(MOST_WORDS + 1);
    let text =
        format!("# Title\n\nShort. {long}\n- `{long}` is one word\n- nobody knows\n\n    {long}\n```\n{long}\n```\n");
    let found = faults("page", &text, MOST_WORDS);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].contains("`nobody`") && found[1].contains("more than 30 words"), "{found:#?}");
}

#[test]
fn pages_are_in_plain_words() {
    let mut found = Vec::new();
    for page in pages().iter().filter(|page| !page.starts_with(repository(RECORDS))) {
        found.extend(faults(&page.display().to_string(), &fs::read_to_string(page).unwrap(), MOST_WORDS));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Help without its indentation; commands and options as items of a list.
fn as_page(help: &str) -> String {
    let item = |line: &str| line.strip_prefix("  ").is_some_and(|rest| !rest.starts_with(' '));
    help.lines().map(|line| format!("{}{}\n", if item(line) { "- " } else { "" }, line.trim())).collect()
}

#[test]
fn help_is_in_plain_words() {
    let sandbox = Sandbox::new();
    let root = sandbox.run(&["--help"]).expect(0);
    let list = root.split_once("Commands:").unwrap().1;
    let commands = list.lines().skip(1).take_while(|line| !line.trim().is_empty());
    let commands = commands.filter(|line| !line.starts_with("   "));
    let commands: Vec<&str> = commands.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.len() > 30, "{root}");
    let mut found = faults("ledger --help", &as_page(&root), MOST_WORDS_SAID);
    for command in commands.into_iter().filter(|command| *command != "help") {
        let help = sandbox.run(&[command, "--help"]).expect(0);
        found.extend(faults(&format!("ledger {command} --help"), &as_page(&help), MOST_WORDS_SAID));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The string literals of Rust code, without comments. Line breaks that the code escapes are removed.
fn literals(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut rest = code;
    while let Some(at) = rest.find(['"', '\'', '/']) {
        let (token, after) = (rest.as_bytes()[at], &rest[at + 1..]);
        rest = match token {
            b'/' if after.starts_with('/') => after.split_once('\n').map_or("", |(_, next)| next),
            b'/' => after,
            b'\'' => {
                // A character, unless it is a lifetime.
                let mut chars = after.char_indices();
                let first = chars.next().map_or(' ', |(_, c)| c);
                let end = if first == '\\' {
                    after[2..].find('\'').map(|end| end + 2)
                } else {
                    chars.next().map(|(end, _)| end)
                };
                end.filter(|end| after[*end..].starts_with('\'')).map_or(after, |end| &after[end + 1..])
            }
            _ if rest[..at].ends_with("r#") || rest[..at].ends_with('r') => {
                let end = if rest[..at].ends_with('#') { "\"#" } else { "\"" };
                let (text, next) = after.split_once(end).unwrap_or((after, ""));
                found.push(text.to_owned());
                next
            }
            _ => {
                let (mut text, mut chars) = (String::new(), after.char_indices());
                let mut end = after.len();
                while let Some((at, c)) = chars.next() {
                    match c {
                        '"' => {
                            end = at + 1;
                            break;
                        }
                        '\\' => match chars.next() {
                            Some((_, 'n')) => text.push('\n'),
                            Some((_, other)) => text.push(other),
                            None => {}
                        },
                        other => text.push(other),
                    }
                }
                found.push(text);
                &after[end..]
            }
        };
    }
    found
}

/// The strings of a source file with too long sentences. A message is a problem, and in parentheses what fixes it:
/// these are sentences of their own.
fn long_messages(code: &str) -> Vec<String> {
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = literals(code).into_iter().flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
    let parts = lines.flat_map(|line| line.split(" (").map(str::to_owned).collect::<Vec<_>>());
    // A list of letters is no sentence.
    let is_prose = |text: &String| text.split(' ').any(|word| word.chars().filter(|c| c.is_alphabetic()).count() > 3);
    parts.filter(is_prose).flat_map(|part| long_sentences(&part, MOST_WORDS_SAID)).collect()
}

#[test]
fn messages_are_in_short_sentences() {
    let long = "word ".repeat(MOST_WORDS_SAID + 1);
    let parts = "word ".repeat(MOST_WORDS_SAID - 1);
    let code = format!(
        "// \"{long}\"\nlet (a, b) = ('\"', '\\''); say(\"{long}\"); say(\"{parts}({parts})\"); say(r\"\\\"); say(r#\"{long}\"#);"
    );
    assert_eq!(long_messages(&code).len(), 2, "{code}");
    let mut found = Vec::new();
    for file in sources(&repository("src")) {
        let of_file = long_messages(&fs::read_to_string(&file).unwrap());
        found.extend(
            of_file.iter().map(|text| format!("{}: more than {MOST_WORDS_SAID} words: {text}", file.display())),
        );
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Source files without those of tests.
fn sources(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let of = |path: PathBuf| match path.file_stem().is_some_and(|name| name == "tests") {
        true => Vec::new(),
        false if path.is_dir() => sources(&path),
        false => Vec::from_iter(path.extension().is_some_and(|extension| extension == "rs").then_some(path)),
    };
    entries.flat_map(of).collect()
}

/// How a forge and mdBook name a heading in links.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn anchors(page: &Path) -> BTreeSet<String> {
    let text = fs::read_to_string(page).unwrap();
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let headings = prose(&text).into_iter().filter(|line| line.starts_with('#')).map(anchor).collect::<Vec<_>>();
    let numbered = headings.into_iter().map(|name| {
        let count = seen.entry(name.clone()).or_default();
        *count += 1;
        if *count == 1 { name } else { format!("{name}-{}", *count - 1) }
    });
    numbered.collect()
}

#[test]
fn links_lead_to_files_and_headings_that_there_are() {
    let mut found = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for line in prose(&text) {
            for (at, _) in line.match_indices("](") {
                let target = line[at + 2..].split(')').next().unwrap_or_default();
                if target.contains("://") || target.starts_with("mailto:") {
                    continue;
                }
                let (path, heading) = target.split_once('#').unwrap_or((target, ""));
                let file = if path.is_empty() { page.clone() } else { page.parent().unwrap().join(path) };
                let is_there = file.exists() && (heading.is_empty() || anchors(&file).contains(heading));
                if !is_there {
                    found.push(format!("{}: {target}", page.display()));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
