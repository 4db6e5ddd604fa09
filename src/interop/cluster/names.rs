//! Texts that are repeated in many rows, each stored once and identified by a number.

use std::collections::HashMap;

/// Texts, numbered in the order of their first occurrence.
#[derive(Default)]
pub(super) struct Names {
    codes: HashMap<Box<[u8]>, u32>,
    last: Option<(Box<[u8]>, u32)>,
}

impl Names {
    /// Returns the number of a text. The last text is cached, because rows often repeat the name of the row before.
    pub(super) fn code(&mut self, text: &[u8]) -> u32 {
        if let Some((last, code)) = &self.last
            && **last == *text
        {
            return *code;
        }
        let code = match self.codes.get(text) {
            Some(code) => *code,
            None => {
                // More than 2^32 different names do not fit into memory.
                let next = u32::try_from(self.codes.len()).unwrap_or(u32::MAX);
                self.codes.insert(text.into(), next);
                next
            }
        };
        self.last = Some((text.into(), code));
        code
    }

    /// Returns the texts in the order of their numbers.
    pub(super) fn into_texts(self) -> Vec<String> {
        let mut texts: Vec<(u32, String)> =
            self.codes.into_iter().map(|(text, code)| (code, String::from_utf8_lossy(&text).into_owned())).collect();
        texts.sort_unstable();
        texts.into_iter().map(|(_, text)| text).collect()
    }
}

/// Sorted texts without duplicates.
pub(super) struct Sorted {
    pub(super) texts: Vec<String>,
}

impl Sorted {
    /// Sorts the texts and removes duplicates.
    pub(super) fn new<'a>(texts: impl IntoIterator<Item = &'a String>) -> Self {
        let mut texts: Vec<String> = texts.into_iter().cloned().collect();
        texts.sort_unstable();
        texts.dedup();
        Self { texts }
    }

    /// Returns the position of a text; 0 if it is absent.
    pub(super) fn place(&self, text: &String) -> u32 {
        self.texts.binary_search(text).ok().and_then(|place| u32::try_from(place).ok()).unwrap_or(0)
    }

    /// Returns the positions of texts.
    pub(super) fn places(&self, texts: &[String]) -> Vec<u32> {
        texts.iter().map(|text| self.place(text)).collect()
    }
}

/// The separator between the parts of a name.
pub(super) const SEPARATOR: char = '\u{1f}';

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbered_once_and_sorted_afterwards() {
        let mut names = Names::default();
        let codes: Vec<u32> = ["b", "b", "a", "b", "007"].map(|name| names.code(name.as_bytes())).to_vec();
        assert_eq!(codes, [0, 0, 1, 0, 2]);
        let texts = names.into_texts();
        assert_eq!(texts, ["b", "a", "007"]);
        let sorted = Sorted::new(&texts);
        assert_eq!(sorted.texts, ["007", "a", "b"]);
        assert_eq!(sorted.places(&texts), [2, 1, 0]);
    }
}
