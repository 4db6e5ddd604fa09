//! A line of the trainer runtime's log about a kernel that was selected by its time: JSON, of which only some fields are read.

use serde_json::Value as Json;

/// A kernel that was selected among several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its name.
    pub kernel: String,
    /// The problem for which it was selected, as the runtime writes it.
    pub key: String,
}

/// Parses such a line; `None` for any other line.
pub fn parse_choice(line: &str) -> Option<Choice> {
    let record: Json = serde_json::from_str(line).ok()?;
    let index = record["fastest_index"].as_u64()?;
    let mut outcomes = record["results"].as_array()?.iter().map(|result| &result["outcome"]["Ok"]);
    let kernel = outcomes.find(|outcome| outcome["index"].as_u64() == Some(index))?["name"].as_str()?.to_owned();
    Some(Choice { kernel, key: record["key"].to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_winner_is_the_one_of_that_index() {
        let line = |index: u64| {
            format!(
                r#"{{"key":{{"m":64}},"fastest_index":{index},"fastest_time":{{"secs":0,"nanos":5}},"results":[{{"outcome":{{"Err":{{"Skip":{{"name":"plain"}}}}}}}},{{"outcome":{{"Ok":{{"name":"tiled","index":1}}}}}}],"log_context":null}}"#
            )
        };
        let expected = Choice { kernel: "tiled".to_owned(), key: r#"{"m":64}"#.to_owned() };
        assert_eq!(parse_choice(&line(1)), Some(expected));
        for other in [line(0), "{}".to_owned(), "tuning …".to_owned(), String::new()] {
            assert_eq!(parse_choice(&other), None, "{other}");
        }
    }
}
