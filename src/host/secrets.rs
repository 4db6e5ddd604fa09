//! Takes secrets out of texts that are to be kept.
//!
//! Known by their form: tokens of well-known services, private keys, passwords in URLs, and values that a name such as `API_KEY` or `password` is set to.

use super::environment::{REDACTED, SECRET, without_credentials};

/// What tokens of well-known services begin with; at least sixteen characters follow.
const TOKENS: &[&str] = &[
    "ghp_",
    "gho_",
    "ghs_",
    "github_pat_",
    "glpat-",
    "hf_",
    "sk-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "ASIA",
    "AIza",
    "ya29.",
    "npm_",
    "pypi-",
    "dckr_pat_",
    "eyJhbGciOi",
];
/// A secret is at least this long.
const SHORTEST: usize = 12;

/// The text without secrets, and whether there were any. Lines that are no UTF-8 stay as they are.
pub fn redact(text: &[u8]) -> (Vec<u8>, bool) {
    let mut clean = Vec::with_capacity(text.len());
    let mut in_key = false;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let Ok(words) = std::str::from_utf8(line) else {
            clean.extend_from_slice(line);
            continue;
        };
        let begins = words.contains("-----BEGIN ") && words.contains("PRIVATE KEY-----");
        let ends = words.contains("-----END ") && words.contains("PRIVATE KEY-----");
        if begins || ends {
            in_key = begins && !ends;
            clean.extend_from_slice(line);
        } else if in_key {
            // Of a line of a patch its first character stays, which says that it was added or taken away.
            let mark = words.chars().next().filter(|mark| matches!(mark, '+' | '-' | ' '));
            clean.extend(mark.map(|mark| mark.to_string()).unwrap_or_default().bytes());
            clean.extend_from_slice(REDACTED.as_bytes());
            clean.push(b'\n');
        } else {
            clean.extend_from_slice(of_line(words).as_bytes());
        }
    }
    let found = clean != text;
    (clean, found)
}

fn of_line(line: &str) -> String {
    let line = without_credentials(line);
    let line = without_tokens(&line);
    without_values(&line)
}

fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '/' | '=')
}

fn without_tokens(line: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let stands_alone = !clean.ends_with(|c: char| c.is_ascii_alphanumeric());
        let begin = TOKENS.iter().find(|begin| stands_alone && rest.starts_with(**begin));
        let length = rest.find(|c| !is_of_token(c)).unwrap_or(rest.len());
        match begin {
            Some(begin) if length >= begin.len() + 16 => {
                clean.push_str(REDACTED);
                rest = &rest[length..];
            }
            _ => {
                clean.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    clean
}

/// `NAME = value`, `name: "value"`: the value goes if the name says that it is a secret and the value looks like one.
fn without_values(line: &str) -> String {
    let Some(at) = line.find(['=', ':']) else { return line.to_owned() };
    let (before, after) = line.split_at(at + 1);
    let name: String = before[..at].trim_end_matches([' ', '"', '\'', '\t']).to_ascii_uppercase();
    let name = name.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '-').next().unwrap_or_default();
    let is_secret =
        name.split(['_', '-']).any(|word| SECRET.contains(&word) || ["APIKEY", "PASSPHRASE", "PWD"].contains(&word));
    if !is_secret {
        return format!("{before}{}", without_values(after));
    }
    let begin = after.find(|c| !matches!(c, ' ' | '\t' | '"' | '\'')).unwrap_or(after.len());
    let value = &after[begin..];
    let quoted = after[..begin].contains(['"', '\'']);
    let end = if quoted { value.find(['"', '\'']) } else { value.find([' ', ',', ';', '\n', '\r']) };
    let end = end.unwrap_or(value.trim_end().len());
    let (value, beyond) = value.split_at(end);
    let is_code = value.contains(['(', ')', '{', '}', '<', '>', '&', '$']) || value.contains("::");
    let mixed = value.contains(|c: char| c.is_ascii_digit()) && value.contains(|c: char| c.is_ascii_alphabetic());
    if value.len() >= SHORTEST && !is_code && (mixed || quoted) {
        format!("{before}{}{REDACTED}{beyond}", &after[..begin])
    } else {
        line.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(text: &str) -> String {
        String::from_utf8(redact(text.as_bytes()).0).unwrap()
    }

    #[test]
    fn planted_secrets_are_taken_out() {
        let cases = [
            ("+API_KEY = \"a81c9f20d1b34e5f\"\n", "+API_KEY = \"(redacted)\"\n"),
            ("+export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG\n", "+export AWS_SECRET_ACCESS_KEY=(redacted)\n"),
            ("  \"db-password\": \"correct horse battery\",\n", "  \"db-password\": \"(redacted)\",\n"),
            ("token = 'abcdefghijklmnop'", "token = '(redacted)'"),
            ("login(ghp_0123456789abcdef0123)\n", "login((redacted))\n"),
            ("key AKIAIOSFODNN7EXAMPLE0 here", "key (redacted) here"),
            ("hf_AbCdEfGhIjKlMnOpQrSt", "(redacted)"),
            (
                "index-url = https://me:hunter2@pypi.example/simple\n",
                "index-url = https://(redacted)@pypi.example/simple\n",
            ),
            ("a = 1, secret: x9y8z7w6v5u4t3 # b\n", "a = 1, secret: (redacted) # b\n"),
            (
                "+-----BEGIN OPENSSH PRIVATE KEY-----\n+b3BlbnNzaC1rZXk\n+AAAA\n+-----END OPENSSH PRIVATE KEY-----\n+x = 1\n",
                "+-----BEGIN OPENSSH PRIVATE KEY-----\n+(redacted)\n+(redacted)\n+-----END OPENSSH PRIVATE KEY-----\n+x = 1\n",
            ),
        ];
        for (text, expected) in cases {
            assert_eq!(clean(text), expected);
            assert!(redact(text.as_bytes()).1);
        }
    }

    #[test]
    fn code_and_manifests_stay_as_they_are() {
        let text = "+let key = cells.first();\n tokens: usize,\n key: &'static str,\n-token_count = 4096\n\
                    [model]\nname = [\"softmax\", \"mnist_mlp\"]\nlearning_rate = 0.001\nurl = http://host/path\n\
                    monkey = \"a81c9f20d1b34e5f\"\nsk-short\nkeyboard: abcdefghijkl1\nauth = env(\"TOKEN\")\n";
        assert_eq!(clean(text), text);
        assert_eq!(redact(&[0xff, b'\n', 0xfe]), (vec![0xff, b'\n', 0xfe], false));
        assert_eq!(redact(b""), (Vec::new(), false));
    }
}
