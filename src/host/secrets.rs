//! Removes secrets from texts that will be recorded.
//!
//! Secrets are recognised by their form (tokens of well-known services, private keys, passwords in URLs) and by the
//! name before them, as in `API_KEY=…` or `password: …`.

mod named;

use super::environment::{self, REDACTED, without_credentials};
use ledger_record::{Table, Value};
use named::{Name, without_values};
use std::sync::OnceLock;

/// Prefixes of tokens of well-known services; at least sixteen characters follow.
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
/// The minimum length from which the value of a secret variable is recognised on its own.
const SHORTEST_VALUE: usize = 16;
/// Longer lines were not written by a person, and are redacted whole.
const LONGEST_LINE: usize = 64 << 10;

/// Returns the text without secrets, and whether there were any. Lines without secrets are unchanged, byte for byte.
pub fn redact(text: &[u8]) -> (Vec<u8>, bool) {
    let mut clean = Vec::with_capacity(text.len());
    let mut redactor = Redactor::default();
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        let words = String::from_utf8_lossy(line);
        let of_line = redactor.line(&words);
        clean.extend_from_slice(if of_line == words { line } else { of_line.as_bytes() });
    }
    let found = clean != text;
    (clean, found)
}

/// As [`redact`], for text that is valid UTF-8.
pub fn redacted(text: &str) -> String {
    let mut redactor = Redactor::default();
    text.split_inclusive('\n').map(|line| redactor.line(line)).collect()
}

/// Removes secrets from a text that arrives line by line.
#[derive(Clone, Debug, Default)]
pub struct Redactor {
    /// Whether an earlier line began a private key.
    in_key: bool,
}

impl Redactor {
    /// Returns a redactor for a text whose beginning is unknown. Text before the end of a private key counts as part of
    /// the key.
    pub fn amid<'a>(rest: impl IntoIterator<Item = &'a str>) -> Self {
        let first = |text: &str| {
            let at = |begin: &str| marker(text, begin).map(|(at, _)| at);
            match (at("-----END "), at("-----BEGIN ")) {
                (Some(end), begin) => Some(begin.is_none_or(|begin| end < begin)),
                (None, Some(_)) => Some(false),
                (None, None) => None,
            }
        };
        Self { in_key: rest.into_iter().find_map(first).unwrap_or(false) }
    }

    /// Returns the next line without secrets.
    pub fn line(&mut self, line: &str) -> String {
        let is_long = line.len() > LONGEST_LINE;
        let clean = without_keys(line, &mut self.in_key, &|text| if is_long { String::new() } else { of_text(text) });
        if is_long { format!("{}{REDACTED}\n", mark_of(line)) } else { clean }
    }
}

/// Returns the text without secrets that are recognised by their form: tokens, private keys, passwords in URLs.
pub fn without_known(text: &str) -> String {
    let mut in_key = false;
    let of_text = |text: &str| without_tokens(&without_credentials(text));
    text.split_inclusive('\n').map(|line| without_keys(line, &mut in_key, &of_text)).collect()
}

/// Returns a value in which every text is replaced by the result of `clean`.
pub fn cleaned(value: &Value, clean: &dyn Fn(&str) -> String) -> Value {
    match value {
        Value::Str(text) => clean(text).into(),
        Value::List(items) => Value::List(items.iter().map(|item| cleaned(item, clean)).collect()),
        Value::Table(table) => {
            Value::Table(table.iter().map(|(name, item)| (name.clone(), cleaned(item, clean))).collect())
        }
        other => other.clone(),
    }
}

/// Returns a named value without secrets. If the name is that of a secret and a text looks like one, the whole text is
/// redacted.
pub fn without_secret(name: &str, value: &Value) -> Value {
    match value {
        Value::Str(text) => {
            let line = format!("{name} = \"{text}\"");
            if without_values(&line) == line { redacted(text) } else { REDACTED.to_owned() }.into()
        }
        Value::List(items) => Value::List(items.iter().map(|item| without_secret(name, item)).collect()),
        Value::Table(table) => {
            let of_item = |(name, item): (&String, &Value)| (name.clone(), without_secret(name, item));
            Value::Table(table.iter().map(of_item).collect())
        }
        other => other.clone(),
    }
}

/// Whether a text contains a secret that is recognised by its form: a token, a private key, a password in a URL.
pub fn has_known(text: &str) -> bool {
    let is_clean = |text: &str| without_tokens(&without_credentials(text)) == text;
    marker(text, "-----BEGIN ").is_some() || !text.lines().all(is_clean)
}

/// Whether a command contains a secret, by its form or after the name of one: `--password=…`, `--password …`.
pub fn has_secret_words(words: &[String]) -> bool {
    let is_named = |pair: &[String]| match pair {
        [name, value] => {
            let line = format!("{name}=\"{value}\"");
            let is_value = !value.starts_with(['-', '$', '<']) && !value.contains('{');
            name.starts_with('-') && !name.contains('=') && is_value && without_values(&line) != line
        }
        _ => false,
    };
    redacted(&words.join(" ")) != words.join(" ") || words.windows(2).any(is_named)
}

/// Returns the keys of a table whose values count as secrets, by form or name. Names of nested tables are joined with
/// dots.
pub fn places(table: &Table) -> Vec<String> {
    fn look(name: &str, value: &Value, found: &mut Vec<String>) {
        let is_secret = match value {
            Value::Table(table) => {
                table.iter().for_each(|(inner, value)| look(&format!("{name}.{inner}"), value, found));
                false
            }
            Value::List(items) => {
                let words: Vec<String> = items.iter().filter_map(Value::as_str).map(str::to_owned).collect();
                has_secret_words(&words) || without_secret(name, value) != *value
            }
            // NaN differs from itself.
            Value::Float(number) if number.is_nan() => false,
            other => without_secret(name, other) != *other,
        };
        if is_secret {
            found.push(name.to_owned());
        }
    }
    let mut found = Vec::new();
    table.iter().for_each(|(name, value)| look(name, value, &mut found));
    found
}

/// Whether a name marks a value in a text as a secret.
pub fn is_named_secret(name: &str) -> bool {
    Name::at_end_of(name).is_some()
}

/// Returns the first character of a patch's line, which marks it as added or removed.
fn mark_of(line: &str) -> &str {
    line.get(..1).filter(|mark| matches!(*mark, "+" | "-" | " ")).unwrap_or_default()
}

/// Returns the line without private keys. `in_key` is whether an earlier line began one, and is updated. Text outside
/// of keys is passed through `of_text`.
fn without_keys(line: &str, in_key: &mut bool, of_text: &dyn Fn(&str) -> String) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut rest = line;
    loop {
        let next = marker(rest, if *in_key { "-----END " } else { "-----BEGIN " });
        let (before, marker) = next.map_or((rest, ""), |(begin, end)| (&rest[..begin], &rest[begin..end]));
        if *in_key {
            let mark = if clean.is_empty() { mark_of(before) } else { "" };
            clean.push_str(mark);
            if !before[mark.len()..].trim().is_empty() || next.is_none() {
                clean.push_str(REDACTED);
            }
            if next.is_none() {
                clean.push('\n');
            }
        } else {
            clean.push_str(&of_text(before));
        }
        let Some((_, end)) = next else { return clean };
        clean.push_str(marker);
        *in_key = !*in_key;
        rest = &rest[end..];
        if rest.trim().is_empty() {
            clean.push_str(rest);
            return clean;
        }
    }
}

/// Returns the start and end of the next marker of a private key.
fn marker(text: &str, begin: &str) -> Option<(usize, usize)> {
    let is_label = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == ' ';
    text.match_indices(begin).find_map(|(at, _)| {
        let label = &text[at + begin.len()..];
        let length = label.find(|c| !is_label(c))?;
        let is_key = label[..length].contains("PRIVATE KEY") && label[length..].starts_with("-----");
        is_key.then_some((at, at + begin.len() + length + 5))
    })
}

fn of_text(text: &str) -> String {
    let text = without_credentials(text);
    let text = without_tokens(&text);
    let text = without_values(&text);
    without_any(text, secrets_of_environment())
}

/// Returns the values of this process's secret variables, which its workers inherit. A program may print them after any
/// name, or none. Short values and paths are left out, because they may be ordinary words.
fn secrets_of_environment() -> &'static [String] {
    static FOUND: OnceLock<Vec<String>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let named = environment::all().into_iter().filter_map(|(name, value)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            is_secret_value(&name, &value).then_some(value)
        });
        let mut found: Vec<String> = named.collect();
        // Longest first, because one may be part of another.
        found.sort_by_key(|value| std::cmp::Reverse(value.len()));
        found
    })
}

/// Whether a variable's name is that of a secret, and its value is not a path, an address or a plain word.
fn is_secret_value(name: &str, value: &str) -> bool {
    let is_plain = value.starts_with('/') || value.contains("://") || value.contains(char::is_whitespace);
    value.len() >= SHORTEST_VALUE && !is_plain && named::is_mixed(value) && is_named_secret(name)
}

fn without_any(text: String, secrets: &[String]) -> String {
    secrets.iter().fold(text, |text, secret| match text.contains(secret) {
        true => text.replace(secret, REDACTED),
        false => text,
    })
}

fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '/' | '=')
}

/// Returns the position of a secret after words that announce it: `Bearer …`, `wandb login …`.
fn announced(text: &str) -> Option<(usize, usize)> {
    let first = text.as_bytes().first()?;
    let behind = |word: &str| text.get(..word.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(word));
    let (mut begin, is_token): (usize, fn(&str) -> bool) = match first {
        b'B' | b'b' if behind("bearer ") => {
            let is_mixed = |token: &str| token.len() >= 16 && token.contains(|c: char| c.is_ascii_digit());
            (7, is_mixed)
        }
        b'w' | b'W' if behind("wandb login ") => {
            let is_key =
                |token: &str| token.len() >= 32 && token.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
            (12, is_key)
        }
        _ => return None,
    };
    loop {
        let rest = &text[begin..];
        let length = rest.find(|c| !is_of_token(c)).unwrap_or(rest.len());
        let token = &rest[..length];
        if is_token(token) && !token.starts_with('-') {
            return Some((begin, begin + length));
        }
        // Options may precede the key: `wandb login --relogin KEY`.
        if !token.starts_with("--") || !rest[length..].starts_with(' ') {
            return None;
        }
        begin += length + 1;
    }
}

fn without_tokens(line: &str) -> String {
    let mut clean = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let stands_alone = !clean.ends_with(|c: char| c.is_ascii_alphanumeric());
        let begin = TOKENS.iter().find(|begin| stands_alone && rest.starts_with(**begin));
        let length = begin.map(|begin| (begin.len(), rest.find(|c| !is_of_token(c)).unwrap_or(rest.len())));
        let announced = if stands_alone { announced(rest) } else { None };
        match length {
            _ if announced.is_some() => {
                let (begin, end) = announced.unwrap_or_default();
                clean.push_str(&rest[..begin]);
                clean.push_str(REDACTED);
                rest = &rest[end..];
            }
            Some((begin, length)) if length >= begin + 16 => {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(text: &str) -> String {
        String::from_utf8(redact(text.as_bytes()).0).unwrap()
    }

    #[test]
    fn values_of_secret_variables_are_redacted_anywhere() {
        let secrets = ["0123456789abcdef0123".to_owned()];
        let clean = |text: &str| without_any(text.to_owned(), &secrets);
        assert_eq!(
            clean("rep '0123456789abcdef0123', twice 0123456789abcdef0123"),
            "rep '(redacted)', twice (redacted)"
        );
        assert_eq!(clean("loss 0.5"), "loss 0.5");
        assert!(is_secret_value("WANDB_API_KEY", "0123456789abcdef0123"));
        for (name, value) in [
            ("TOKENIZER_NAME", "bert-base-uncased-2"),
            ("MONKEY", "0123456789abcdef0123"),
            ("OS_AUTH_URL", "https://host1/path/of/it"),
            ("SSH_KEY", "/home/me/.ssh/id_ed25519"),
            ("API_TOKEN", "short1"),
        ] {
            assert!(!is_secret_value(name, value), "{name}");
        }
    }

    #[test]
    fn planted_secrets_are_redacted() {
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
            ("+const API_KEY: &str = \"a81c9f20d1b34e5f\";\n", "+const API_KEY: &str = \"(redacted)\";\n"),
            (
                "API_KEY=\"abcdefghijklmn\", SECRET=\"p$q&r(s<tuvwxyz\"\n",
                "API_KEY=\"(redacted)\", SECRET=\"(redacted)\"\n",
            ),
            (
                "curl -H \"Authorization: Bearer abcdefghijklmn\" x\n",
                "curl -H \"Authorization: Bearer (redacted)\" x\n",
            ),
            ("\"Authorization\": \"Bearer abcdefghijklmn\"", "\"Authorization\": \"Bearer (redacted)\""),
            ("os.environ[\"API_KEY\"] = 'abc-def-ghi-jkl'", "os.environ[\"API_KEY\"] = '(redacted)'"),
            ("get(\"http://h/p?token=a1b2c3d4e5f6a7&page=3\")", "get(\"http://h/p?token=(redacted)&page=3\")"),
            (
                "+  \"key\": \"-----BEGIN PRIVATE KEY-----\\nMIIEvQIBADAN\\n-----END PRIVATE KEY-----\\n\", \"token\": \"abcdefghijklmn\"\n+x = 1\n",
                "+  \"key\": \"-----BEGIN PRIVATE KEY-----(redacted)-----END PRIVATE KEY-----\\n\", \"token\": \"(redacted)\"\n+x = 1\n",
            ),
            (
                "-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQOYBF\n-----END PGP PRIVATE KEY BLOCK-----\nx\n",
                "-----BEGIN PGP PRIVATE KEY BLOCK-----\n(redacted)\n-----END PGP PRIVATE KEY BLOCK-----\nx\n",
            ),
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
    fn short_values_are_redacted_after_an_unambiguous_name() {
        let cases = [
            ("+PASSWORD=correcthorsebattery\n", "+PASSWORD=(redacted)\n"),
            ("+API_KEY: abcdefghijklmnop\n", "+API_KEY: (redacted)\n"),
            ("+password = \"hunter2\"\n", "+password = \"(redacted)\"\n"),
            ("+DB_PASSWORD=s3cret99\n", "+DB_PASSWORD=(redacted)\n"),
            ("export HF_TOKEN=abcdefgh; run\n", "export HF_TOKEN=(redacted); run\n"),
            ("PASSWORD=correct_horse.battery\n", "PASSWORD=(redacted)\n"),
            ("password: hunter2\n", "password: (redacted)\n"),
            ("password = correct # not for you\n", "password = (redacted) # not for you\n"),
            ("mysql --password=battery --user=me\n", "mysql --password=(redacted) --user=me\n"),
            ("\\\"password\\\": \\\"hunter2\\\"", "\\\"password\\\": \\\"(redacted)\\\""),
            ("if password != 'open sesame':", "if password != '(redacted)':"),
            ("secret = \"\"\"swordfish\"\"\"", "secret = \"\"\"(redacted)\"\"\""),
            ("const PASSWORD: String = \"abcd\";", "const PASSWORD: String = \"(redacted)\";"),
            ("token: abcdefghijklmnop\n", "token: (redacted)\n"),
        ];
        for (text, expected) in cases {
            assert_eq!(clean(text), expected);
        }
    }

    #[test]
    fn references_to_secrets_stay() {
        let text = "password = read()\npassword = getpass.getpass()\npassword=password,\nconnect(password=password)\n\
                    password: str\npassword: Option<String>,\n  secret: String,\npassword = user_password\n\
                    PASSWORD=$OTHER\nPASSWORD=$(cat file)\npassword = \"${PASSWORD}\"\ntoken = tokens[i]\n\
                    key = first\nkey = self.key\nkey=lambda x: x\nif key == other:\npassword = None\npad_token = \"[PAD]\"\n\
                    key = \"loss\"\ntoken: usize,\nkey: u64 = 3\npassword = \"\", name = \"abcdefghijkl\"\n\
                    max_token = 4096\nsort(key=len, reverse=True)\n";
        assert_eq!(clean(text), text);
    }

    #[test]
    fn numbers_and_names_of_parameters_stay() {
        for text in [
            "loss_per_token=1.2345678e-05",
            "{\"energy_per_token\": 1.2345678e-05, \"step\": 3}",
            "ms/token: 12.345678ms",
            "LOSS_PER_TOKEN=2.513",
            "missing key: encoder.layer.0.weight",
        ] {
            assert_eq!(clean(text), text);
        }
    }

    #[test]
    fn secret_parameters_are_recognised_by_form_or_name() {
        assert!(has_known("hf_AbCdEfGhIjKlMnOpQrSt") && has_known("x\nhttps://me:hunter2@host/"));
        assert!(!has_known("gelu") && !has_known("https://host/path"));
        assert!(is_named_secret("params.api_key") && is_named_secret("params.db-password"));
        assert!(!is_named_secret("params.monkey") && !is_named_secret("params.tokens"));
    }

    #[test]
    fn secrets_after_announcing_words_are_recognised() {
        let key = "0123456789abcdef0123456789abcdef01234567";
        for (text, expected) in [
            (format!("wandb login {key} && run"), "wandb login (redacted) && run".to_owned()),
            (format!("wandb login --relogin {key}"), "wandb login --relogin (redacted)".to_owned()),
            ("curl -H 'x: bearer a1b2c3d4e5f6a7b8c9' x".to_owned(), "curl -H 'x: bearer (redacted)' x".to_owned()),
        ] {
            assert!(has_known(&text));
            assert_eq!(without_known(&text), expected);
        }
        for text in ["Bearer authentication-is-required", "wandb login --relogin", "bearer of a1b2c3d4e5f6a7b8c9"] {
            assert!(!has_known(text), "{text}");
        }
        assert_eq!(
            clean("DefaultEndpointsProtocol=https;AccountKey=abCD12+/efGH34==;EndpointSuffix=x\n"),
            "DefaultEndpointsProtocol=https;AccountKey=(redacted);EndpointSuffix=x\n"
        );
        assert_eq!(redacted("/data:https://h/p?token=a1b2c3d4e5f6"), "/data:https://h/p?token=(redacted)");
    }

    #[test]
    fn words_of_a_command_are_judged_together() {
        let is_secret =
            |words: &[&str]| has_secret_words(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert!(is_secret(&["train", "--password=hunter2"]) && is_secret(&["train", "--password", "hunter2"]));
        assert!(is_secret(&["wandb", "login", "0123456789abcdef0123456789abcdef01234567"]));
        assert!(!is_secret(&["train", "--password", "{password}"]) && !is_secret(&["train", "--token", "--verbose"]));
        assert!(!is_secret(&["train", "--lr=0.1", "--key-size", "4096"]));
    }

    #[test]
    fn places_name_the_keys_of_secrets() {
        let nested = Table::from([("api_key".to_owned(), "a81c9f20d1b3".into()), ("name".to_owned(), "gelu".into())]);
        let table = Table::from([
            ("program.command".to_owned(), vec!["sh", "--password", "hunter2"].into()),
            ("import".to_owned(), nested.into()),
            ("url".to_owned(), "https://me:hunter2@host/".into()),
            ("path".to_owned(), "/home/me/data".into()),
            ("gamma".to_owned(), f64::NAN.into()),
        ]);
        assert_eq!(places(&table), ["import.api_key", "program.command", "url"]);
    }

    #[test]
    fn a_value_is_judged_by_its_name_and_its_form() {
        let told = |name: &str, text: &str| without_secret(name, &text.into());
        assert_eq!(told("password", "hunter2"), REDACTED.into());
        assert_eq!(told("note", "login ghp_0123456789abcdef0123 failed"), "login (redacted) failed".into());
        assert_eq!(told("model", "gelu"), "gelu".into());
        assert_eq!(told("pad_token", "[PAD]"), "[PAD]".into());
        let table = Value::Table([("api_key".to_owned(), vec!["a81c9f20d1b3"].into())].into());
        assert_eq!(without_secret("login", &table).to_string(), "{api_key = [(redacted)]}");
        // Text that is not a secret by its form stays, whatever precedes it.
        assert_eq!(
            without_known("password=hunter2 https://me:pw@host/x"),
            "password=hunter2 https://(redacted)@host/x"
        );
        let key = "a\n-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\nb";
        assert_eq!(without_known(key), key.replace("MIIE", REDACTED));
        let long = "x ".repeat(LONGEST_LINE);
        assert_eq!(without_known(&long), long);
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
    #[test]
    fn an_overlong_line_is_redacted_whole() {
        let long = |line: &str| format!("{}{}", line, "=:token ghp_a ".repeat(6000));
        assert_eq!(clean(&format!("a\n{}\nb\n", long("+"))), "a\n+(redacted)\nb\n");
        assert_eq!(clean(&format!("{}\nkey\n", long("-----BEGIN PRIVATE KEY-----"))), "-(redacted)\n(redacted)\n");
    }

    #[test]
    fn a_long_line_takes_neither_the_stack_nor_much_time() {
        let begun = std::time::Instant::now();
        for line in ["=", ":", "a=", "key:", "key: a", "abcdef", "sk-a ", "-----BEGIN ", "://a@", "token=="] {
            let text = line.repeat(64 * 1024 / line.len());
            redact(text.as_bytes());
        }
        let text = "x".repeat(8 << 20);
        assert!(redact(text.as_bytes()).1);
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "{:?}", begun.elapsed());
    }
}
