//! The page's API: the available read-only commands, conversion of queries to arguments, and their responses.

use super::kept::{self, Kept};
use crate::record::Value;
use crate::report::{document, table_of};
use hyper::StatusCode;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::sync::Semaphore;

/// The available commands: name, positional arguments and options. All of them only read.
const COMMANDS: [(&str, &[&str], &[&str]); 12] = [
    ("ls", &[], &["limit", "skip", "where", "model", "experiment", "outcome", "sort", "columns", "hidden"]),
    ("names", &[], &[]),
    ("best", &[], &["model", "metric", "where", "group-by", "top", "direction", "gpus", "include"]),
    ("pareto", &[], &["model", "metrics", "where", "gpus", "include", "group-by", "dominated"]),
    ("effects", &[], &["model", "metric", "where", "axes", "scale", "direction", "gpus", "include"]),
    ("show", &["id"], &[]),
    ("telemetry", &["id"], &["series", "from", "to", "points"]),
    ("events", &["id"], &[]),
    ("logs", &["id"], &["tail", "stdout", "stderr"]),
    ("diff", &["a", "b"], &[]),
    ("why", &["a", "b"], &[]),
    ("watch", &[], &[]),
];
/// Options without a value.
const FLAGS: [&str; 4] = ["hidden", "dominated", "stdout", "stderr"];
/// Commands that run at the same time; others wait.
const AT_ONCE: usize = 4;
/// Largest response in bytes; a page could not show a larger one.
const MOST_BYTES: u64 = 64 << 20;

/// Answers requests by running this program.
pub(super) struct Api {
    program: PathBuf,
    ledger: PathBuf,
    turns: Semaphore,
    kept: Kept,
}

/// A response, ready to be sent.
#[derive(Clone)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// One JSON document.
    pub(super) body: Vec<u8>,
    /// The shell command that gives the same response.
    pub(super) command: String,
    /// The command's standard error.
    pub(super) notes: String,
}

impl Api {
    pub(super) fn new(program: PathBuf, ledger: PathBuf) -> Self {
        Self { program, ledger, turns: Semaphore::new(AT_ONCE), kept: Kept::default() }
    }

    /// The ledger's folder.
    pub(super) fn ledger(&self) -> &Path {
        &self.ledger
    }

    /// Answers `GET /api/COMMAND?QUERY`. The command is stopped if the client disconnects.
    pub(super) async fn answer(&self, command: &str, query: &str) -> Answer {
        let arguments = match arguments(command, query) {
            Ok(arguments) => arguments,
            Err((status, why)) => return Answer::refused(status, &why),
        };
        let before = kept::stamp(&self.ledger);
        let is_kept = || kept::is_kept(&arguments, &self.ledger);
        let was_kept = is_kept();
        if let Some(answer) = self.kept.find(&arguments, before).filter(|_| was_kept) {
            return answer;
        }
        let _turn = self.turns.acquire().await;
        let answer = self.run(&arguments).await.unwrap_or_else(|error| {
            Answer::refused(StatusCode::INTERNAL_SERVER_ERROR, &format!("the question could not be asked: {error}"))
        });
        if was_kept && is_kept() {
            self.kept.keep(&arguments, &answer, before);
        }
        answer
    }

    async fn run(&self, arguments: &[String]) -> std::io::Result<Answer> {
        let mut command = Command::new(&self.program);
        command.arg("--ledger").arg(&self.ledger).arg("--json").args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let (mut body, mut notes) = (Vec::new(), Vec::new());
        let answer = async {
            if let Some(stdout) = stdout {
                stdout.take(MOST_BYTES + 1).read_to_end(&mut body).await?;
            }
            Ok::<_, std::io::Error>(())
        };
        let beside = async {
            if let Some(stderr) = stderr {
                stderr.take(4096).read_to_end(&mut notes).await?;
            }
            Ok::<_, std::io::Error>(())
        };
        tokio::try_join!(answer, beside)?;
        if body.len() as u64 > MOST_BYTES {
            return Ok(Answer::refused(StatusCode::PAYLOAD_TOO_LARGE, "the answer has more than 64 MiB"));
        }
        let code = child.wait().await?.code();
        let status = if matches!(code, Some(0 | 1)) { StatusCode::OK } else { StatusCode::BAD_REQUEST };
        let notes = String::from_utf8_lossy(&notes).trim().to_owned();
        if body.is_empty() {
            let why = if notes.is_empty() { "the command gave no answer" } else { &notes };
            return Ok(Answer::refused(StatusCode::INTERNAL_SERVER_ERROR, why));
        }
        Ok(Answer { status, body, command: typed(&self.ledger, arguments), notes })
    }
}

impl Answer {
    pub(super) fn refused(status: StatusCode, why: &str) -> Self {
        let body = document(table_of([("error", Value::Table(table_of([("message", why.into())])))]));
        Self { status, body: body.into_bytes(), command: String::new(), notes: String::new() }
    }
}

/// Converts a query to arguments. Values follow `=` or `--`, so that none is parsed as an option.
fn arguments(command: &str, query: &str) -> Result<Vec<String>, (StatusCode, String)> {
    let known = COMMANDS.iter().find(|(name, ..)| *name == command);
    let Some((name, places, options)) = known else {
        return Err((StatusCode::NOT_FOUND, format!("there is no question `{command}`")));
    };
    let wrong = |why: String| (StatusCode::BAD_REQUEST, why);
    let mut arguments = vec![(*name).to_owned()];
    let mut placed = vec![None; places.len()];
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let value = decoded(value).ok_or_else(|| wrong(format!("`{key}` is no text")))?;
        if let Some(at) = places.iter().position(|place| *place == key) {
            placed[at] = Some(value);
        } else if FLAGS.contains(&key) && options.contains(&key) {
            arguments.extend((value == "true").then(|| format!("--{key}")));
        } else if options.contains(&key) {
            arguments.push(format!("--{key}={value}"));
        } else {
            return Err(wrong(format!("`{name}` has no option `{key}`")));
        }
    }
    if *name == "watch" {
        arguments.push("--once".to_owned());
    }
    if !places.is_empty() {
        arguments.push("--".to_owned());
        for (place, value) in places.iter().zip(placed) {
            arguments.push(value.ok_or_else(|| wrong(format!("`{place}` is missing")))?);
        }
    }
    Ok(arguments)
}

/// Decodes a part of a query; `None` if it is not valid UTF-8 or contains NUL.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// Returns the same command as typed in a shell.
fn typed(ledger: &Path, arguments: &[String]) -> String {
    let quoted = |word: &str| {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:~%+@".contains(c);
        if !word.is_empty() && word.chars().all(is_plain) {
            word.to_owned()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    let words = ["ledger".to_owned(), "--ledger".to_owned(), ledger.to_string_lossy().into_owned()].into_iter();
    let words = words.chain(arguments.iter().filter(|argument| *argument != "--").cloned());
    words.map(|word| quoted(&word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_a_query_are_never_parsed_as_options() {
        let of = |command, query| arguments(command, query).map_err(|(status, _)| status.as_u16());
        let words = |words: &[&str]| Ok(words.iter().map(|word| (*word).to_owned()).collect());
        assert_eq!(of("show", "id=latest"), words(&["show", "--", "latest"]));
        assert_eq!(of("show", "id=--help"), words(&["show", "--", "--help"]));
        assert_eq!(of("best", "where=a%20%3C+2"), words(&["best", "--where=a < 2"]));
        assert_eq!(of("ls", "hidden=true&limit=--all"), words(&["ls", "--hidden", "--limit=--all"]));
        assert_eq!(of("ls", "hidden=false"), words(&["ls"]));
        assert_eq!(of("diff", "b=2&a=1"), words(&["diff", "--", "1", "2"]));
        assert_eq!(of("watch", ""), words(&["watch", "--once"]));
        for (command, query, status) in [
            ("run", "", 404),
            ("hide", "id=latest", 404),
            ("../ls", "", 404),
            ("show", "", 400),
            ("ls", "ledger=%2F", 400),
            ("telemetry", "id=1&plot=x.svg", 400),
            ("show", "id=%ff", 400),
            ("show", "id=%0", 400),
            ("show", "id=a%00b", 400),
        ] {
            assert_eq!(of(command, query), Err(status), "{command} {query}");
        }
    }

    #[test]
    fn the_command_can_be_pasted_into_a_shell() {
        let words: Vec<String> = arguments("best", "where=m+%3D%3D+%22it's%22&model=bert").unwrap();
        let text = typed(Path::new("/a b/ledger"), &words);
        assert_eq!(text, r#"ledger --ledger '/a b/ledger' best '--where=m == "it'\''s"' --model=bert"#);
    }
}
