//! Keeps the first and the last part of a worker's output, line by line in the order in which the lines ended.
//!
//! Secrets are removed when it is sealed, and only from the kept parts, because a worker may write gigabytes.

use crate::host::secrets::Redactor;
use crate::journal::Side;
use crate::record::{Digest, Entry, OutputFacts, Piece, SourceText, Stream};
use crate::wire::encode_output;
use std::path::Path;

/// The size of the first and of the last part, of both streams together.
pub(super) const PART_BYTES: usize = 1 << 20;
/// Longer lines are cut into pieces, so that output without line ends is kept too.
pub(super) const LONGEST_LINE: usize = 32 << 10;
const STREAMS: [Stream; 2] = [Stream::Stdout, Stream::Stderr];

/// The lines of a text with their ends. A carriage return ends a line too, as in progress bars.
pub(super) fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(['\n', '\r'])
}

/// As [`lines`], with long lines cut into pieces, as [`Lines`] does.
pub(super) fn cut_lines(text: &str) -> impl Iterator<Item = &str> {
    lines(text).flat_map(|line| {
        let mut rest = line;
        std::iter::from_fn(move || {
            let at = if rest.len() > LONGEST_LINE { rest.floor_char_boundary(LONGEST_LINE) } else { rest.len() };
            let (piece, after) = rest.split_at(at);
            rest = after;
            (!piece.is_empty()).then_some(piece)
        })
    })
}

/// Splits the chunks of a stream into lines.
#[derive(Default)]
pub(super) struct Lines {
    begun: String,
}

impl Lines {
    /// Adds a chunk, and passes each line that is complete now to `take`.
    pub(super) fn push(&mut self, text: &str, mut take: impl FnMut(&str)) {
        for line in lines(text) {
            let is_whole = line.ends_with(['\n', '\r']);
            if is_whole && self.begun.is_empty() && line.len() <= LONGEST_LINE {
                take(line);
                continue;
            }
            self.begun.push_str(line);
            let mut from = 0;
            while self.begun.len() - from > LONGEST_LINE {
                let to = self.begun.floor_char_boundary(from + LONGEST_LINE);
                take(&self.begun[from..to]);
                from = to;
            }
            self.begun.drain(..from);
            if is_whole {
                take(&std::mem::take(&mut self.begun));
            }
        }
    }

    /// The bytes of the incomplete line.
    pub(super) fn begun_bytes(&self) -> usize {
        self.begun.len()
    }

    /// Removes and returns the incomplete line.
    pub(super) fn rest(&mut self) -> String {
        std::mem::take(&mut self.begun)
    }
}

/// Text of both streams, in order.
#[derive(Default)]
struct Part {
    text: String,
    /// The stream of each piece, and its bytes.
    runs: Vec<(Stream, usize)>,
}

impl Part {
    fn push(&mut self, stream: Stream, text: &str) {
        match self.runs.last_mut() {
            Some((last, bytes)) if *last == stream => *bytes += text.len(),
            _ => self.runs.push((stream, text.len())),
        }
        self.text.push_str(text);
    }

    fn pieces(&self) -> impl Iterator<Item = (Stream, &str)> {
        let mut rest = self.text.as_str();
        self.runs.iter().map(move |(stream, bytes)| {
            let (piece, after) = rest.split_at(*bytes);
            rest = after;
            (*stream, piece)
        })
    }

    /// A copy without the first whole lines, of at least this many bytes.
    fn without_first(&self, bytes: usize) -> Self {
        let mut left = Self::default();
        let mut seen = 0;
        for (stream, piece) in self.pieces() {
            for line in cut_lines(piece) {
                if seen >= bytes {
                    left.push(stream, line);
                }
                seen += line.len();
            }
        }
        left
    }
}

/// The output of a worker so far.
#[derive(Default)]
pub(super) struct Output {
    first: Part,
    is_first_full: bool,
    /// The newest text, and the text before that, which form the last part.
    last: Part,
    before_last: Part,
    begun: [Lines; 2],
    bytes: u64,
}

/// The output as it is sealed.
pub(super) struct Kept {
    pub(super) source: SourceText,
    pub(super) facts: OutputFacts,
}

impl Output {
    /// Adds text of a stream.
    pub(super) fn push(&mut self, stream: Stream, text: &str) {
        self.bytes += text.len() as u64;
        let mut begun = std::mem::take(&mut self.begun[place(stream)]);
        begun.push(text, |line| self.line(stream, line));
        self.begun[place(stream)] = begun;
    }

    /// Records that `bytes` were written before the next text, some of which are lost.
    pub(super) fn had(&mut self, bytes: u64) {
        if bytes > self.bytes {
            self.end_lines();
            self.bytes = bytes;
            self.is_first_full = true;
        }
    }

    fn end_lines(&mut self) {
        for stream in STREAMS {
            let rest = self.begun[place(stream)].rest();
            if !rest.is_empty() {
                self.line(stream, &rest);
            }
        }
    }

    fn line(&mut self, stream: Stream, line: &str) {
        if !self.is_first_full && self.first.text.len() + line.len() <= PART_BYTES {
            return self.first.push(stream, line);
        }
        self.is_first_full = true;
        if self.last.text.len() >= PART_BYTES {
            self.before_last = std::mem::take(&mut self.last);
        }
        self.last.push(stream, line);
    }

    /// The output for sealing. `None` if nothing was written.
    pub(super) fn seal(mut self) -> Option<Kept> {
        self.end_lines();
        let after = self.before_last.text.len() + self.last.text.len();
        let surplus = after.saturating_sub(PART_BYTES);
        let earlier = if surplus > 0 { self.before_last.without_first(surplus) } else { self.before_last };
        let kept = self.first.text.len() + earlier.text.len() + self.last.text.len();
        let left_out = self.bytes.saturating_sub(kept as u64);
        let mut pieces = Clean::default();
        pieces.take(&self.first);
        if left_out > 0 {
            pieces.gap(left_out, &[&earlier, &self.last]);
        }
        pieces.take(&earlier);
        pieces.take(&self.last);
        if pieces.pieces.is_empty() {
            return None;
        }
        let kept = encode_output(&pieces.pieces).ok()?;
        let digest = Digest::of(&kept);
        let source = SourceText { original: digest, is_redacted: false, kept };
        Some(Kept { source, facts: OutputFacts { digest, bytes: self.bytes, left_out } })
    }
}

/// Stores the output of a running attempt on disk: the first part in the journal, the newest in its side files. No more
/// of it is sealed.
pub(super) struct Overflow {
    side: Side,
    /// Bytes of the output.
    bytes: u64,
    /// Bytes in the current side file.
    in_file: usize,
}

impl Overflow {
    /// For a journal.
    pub(super) fn of(journal: &Path) -> Self {
        Self { side: Side::of(journal), bytes: 0, in_file: 0 }
    }

    /// Writes an entry to a side file if it does not belong into the journal. Returns whether it did.
    pub(super) fn takes(&mut self, entry: &Entry) -> bool {
        let (Entry::Stdout(text) | Entry::Stderr(text)) = entry else { return false };
        let before = self.bytes;
        self.bytes += text.len() as u64;
        if before < PART_BYTES as u64 {
            return false;
        }
        // Errors are ignored: the text is also in memory, and is sealed unless this process dies.
        if !self.side.is_begun() || self.in_file >= PART_BYTES {
            self.in_file = 0;
            let _ = self.side.turn(before);
        }
        self.in_file += text.len();
        let _ = self.side.append(entry);
        true
    }
}

fn place(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

/// Builds pieces without secrets.
#[derive(Default)]
struct Clean {
    redactors: [Redactor; 2],
    pieces: Vec<Piece>,
}

impl Clean {
    fn take(&mut self, part: &Part) {
        for (stream, text) in part.pieces() {
            let redactor = &mut self.redactors[place(stream)];
            let clean: String = cut_lines(text).map(|line| redactor.line(line)).collect();
            match self.pieces.last_mut() {
                Some(Piece::Text(last, text)) if *last == stream => text.push_str(&clean),
                _ => self.pieces.push(Piece::Text(stream, clean)),
            }
        }
    }

    /// Adds a gap. A private key may have begun in the omitted part.
    fn gap(&mut self, left_out: u64, behind: &[&Part]) {
        for stream in STREAMS {
            let pieces = behind.iter().flat_map(|part| part.pieces()).filter(|(of, _)| *of == stream);
            self.redactors[place(stream)] = Redactor::amid(pieces.map(|(_, text)| text));
        }
        self.pieces.push(Piece::LeftOut(left_out));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::decode_output;

    fn sealed(written: &[(Stream, &str)]) -> (Vec<Piece>, OutputFacts) {
        let mut output = Output::default();
        written.iter().for_each(|(stream, text)| output.push(*stream, text));
        let kept = output.seal().unwrap();
        assert!(kept.source.kept.len() < SourceText::MOST_BYTES);
        (decode_output(&kept.source.kept).unwrap(), kept.facts)
    }

    fn text(piece: &Piece) -> &str {
        let Piece::Text(_, text) = piece else { panic!("{piece:?}") };
        text
    }

    use Stream::{Stderr, Stdout};

    #[test]
    fn both_streams_are_kept_in_the_order_in_which_their_lines_ended() {
        let (pieces, facts) =
            sealed(&[(Stdout, "one\ntw"), (Stderr, "oh\n"), (Stdout, "o\n 5%\r 9%\r"), (Stderr, "the end")]);
        let expected = [(Stdout, "one\n"), (Stderr, "oh\n"), (Stdout, "two\n 5%\r 9%\r"), (Stderr, "the end")];
        assert_eq!(pieces, expected.map(|(stream, text)| Piece::Text(stream, text.to_owned())));
        assert_eq!((facts.bytes, facts.left_out), (26, 0));
        assert!(Output::default().seal().is_none());
    }

    #[test]
    fn both_ends_of_a_long_output_are_kept_and_the_gap_is_counted() {
        let line = |number: usize| format!("line {number:09} of a long output\n");
        let each = line(0).len();
        let mut output = Output::default();
        let count = 300_000;
        (0..count).for_each(|number| output.push(Stdout, &line(number)));
        let kept = output.seal().unwrap();
        let pieces = decode_output(&kept.source.kept).unwrap();
        let [first, Piece::LeftOut(gap), last] = &pieces[..] else { panic!("{} pieces", pieces.len()) };
        let (first, last) = (text(first), text(last));
        assert!(first.starts_with(&line(0)) && last.ends_with(&line(count - 1)));
        assert!(last.starts_with("line ") && first.len() <= PART_BYTES && last.len() <= PART_BYTES);
        assert!(
            first.len() > PART_BYTES - each && last.len() > PART_BYTES - 2 * each,
            "{} {}",
            first.len(),
            last.len()
        );
        assert_eq!(kept.facts.bytes, (count * each) as u64);
        assert_eq!([kept.facts.left_out, *gap], [kept.facts.bytes - (first.len() + last.len()) as u64; 2]);
    }

    #[test]
    fn a_stream_without_line_ends_is_kept_in_part_too() {
        let (pieces, facts) = sealed(&[(Stderr, "x".repeat(5 << 20).as_str())]);
        let kept: usize = [&pieces[0], &pieces[2]].iter().map(|piece| text(piece).len()).sum();
        assert!(kept <= 2 * PART_BYTES && kept > PART_BYTES, "{kept}");
        assert_eq!(facts.left_out, (5 << 20) - kept as u64);
    }

    #[test]
    fn no_secret_is_kept_on_either_side_of_the_gap() {
        let key = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n";
        let begin = "login ghp_0123456789abcdef0123\nPASSWORD=hunter2\n-----BEGIN PRIVATE KEY-----\n";
        let body = key.repeat(4 * PART_BYTES / key.len());
        let end = "-----END PRIVATE KEY-----\ntoken = 'abcdefghijklmnop'\ndone\n";
        let (pieces, _) = sealed(&[(Stdout, begin), (Stdout, &body), (Stderr, "fine\n"), (Stdout, end)]);
        let all: String = pieces.iter().filter(|piece| matches!(piece, Piece::Text(..))).map(text).collect();
        for secret in ["ghp_", "hunter2", "MIIE", "abcdefghijklmnop"] {
            assert!(!all.contains(secret), "{secret}");
        }
        assert!(all.starts_with("login (redacted)\nPASSWORD=(redacted)\n") && all.contains("fine\n"));
        assert!(
            all.ends_with("-----END PRIVATE KEY-----\ntoken = '(redacted)'\ndone\n"),
            "{}",
            &all[all.len() - 200..]
        );
    }

    #[test]
    fn lines_do_not_depend_on_the_borders_of_chunks() {
        let text = "one\ntwo\rthree\r\n\nfour";
        let whole: Vec<&str> = lines(text).collect();
        for at in 0..=text.len() {
            let (mut lines, mut found) = (Lines::default(), Vec::new());
            [&text[..at], &text[at..]].iter().for_each(|chunk| lines.push(chunk, |line| found.push(line.to_owned())));
            found.push(lines.rest());
            assert_eq!(found, whole, "{at}");
        }
    }
}
