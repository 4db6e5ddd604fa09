//! Files of delimited text with a header: their rows, the places of faults, and the digest of their bytes.
//!
//! Does not know the meaning of the columns.

use super::moment::unix_ns;
use crate::manifest::ManifestError;
use crate::record::{Digest, DigestWriter, Table, Value};
use csv::ByteRecord;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The largest row in bytes. A longer one is a fault, and could take the memory of a whole file.
const MOST_ROW_BYTES: usize = 16 << 20;

/// The largest number of faults that are shown; others are counted.
const SHOWN_FAULTS: usize = 10;

/// An error of reading foreign files.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The file lacks a column.
    #[error("`{}` has no column `{column}` (there are: {})", path.display(), listed(columns))]
    Column {
        /// The file.
        path: PathBuf,
        /// The missing column.
        column: String,
        /// The columns of the file.
        columns: Vec<String>,
    },
    /// Rows have faults.
    #[error("{}{}", lines(faults), more(*count))]
    Rows {
        /// The first faults.
        faults: Vec<RowFault>,
        /// The number of faults.
        count: usize,
    },
    /// The map of a table is wrong.
    #[error(transparent)]
    Map(ManifestError),
    /// The file has no rows.
    #[error("`{}` has no rows", .0.display())]
    Empty(PathBuf),
    /// The files do not fit the request.
    #[error("{0}")]
    Refused(String),
}

/// A fault of a row, with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowFault {
    /// The file.
    pub path: PathBuf,
    /// The line of the row's beginning or of the fault, counted from 1.
    pub line: u64,
    /// The fault, and what is expected.
    pub message: String,
}

impl fmt::Display for RowFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.message)
    }
}

fn lines(faults: &[RowFault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Lists columns for a message.
pub(super) fn listed(columns: &[String]) -> String {
    columns.iter().map(|column| shown(column.as_bytes())).collect::<Vec<_>>().join(", ")
}

fn more(count: usize) -> String {
    let hidden = count.saturating_sub(SHOWN_FAULTS);
    if hidden == 0 { String::new() } else { format!("\nand {hidden} more") }
}

/// The first faults, and the number of all.
#[derive(Default)]
pub(super) struct Faults {
    first: Vec<RowFault>,
    pub(super) count: usize,
}

impl Faults {
    pub(super) fn add(&mut self, fault: RowFault) {
        self.count += 1;
        if self.first.len() < SHOWN_FAULTS {
            self.first.push(fault);
        }
    }

    /// Returns the first fault.
    pub(super) fn first(&self) -> Option<&RowFault> {
        self.first.first()
    }

    /// Returns an error if there are faults.
    pub(super) fn check(self) -> Result<(), ImportError> {
        if self.count == 0 { Ok(()) } else { Err(ImportError::Rows { faults: self.first, count: self.count }) }
    }
}

/// The file that rows were read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The file's path, as given.
    pub path: PathBuf,
    /// The digest of its bytes.
    pub digest: Digest,
    /// Its size in bytes.
    pub bytes: u64,
    /// The number of rows, without the header.
    pub rows: u64,
}

impl Source {
    /// Returns the entry for an attempt's record. It has no folder, so that a moved file is the same file.
    pub(super) fn to_value(&self) -> Value {
        let entry = Table::from([
            ("file".to_owned(), file_name(&self.path).into()),
            ("digest".to_owned(), self.digest.to_string().into()),
            ("bytes".to_owned(), self.bytes.into()),
            ("rows".to_owned(), self.rows.into()),
        ]);
        entry.into()
    }
}

/// Returns the name of a file without its folder.
pub fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// A file whose bytes are hashed and whose quotes are tracked while it is read.
struct Hashed {
    file: File,
    digest: DigestWriter,
    bytes: u64,
    /// The number of bytes read of an unfinished row.
    row_bytes: usize,
    quotes: Quotes,
    is_at_end: bool,
}

impl Hashed {
    /// Whether the file ended within quotes.
    fn is_unclosed(&self) -> bool {
        self.is_at_end && self.quotes.are_open
    }

    /// Returns the number of consecutive line ends from this byte on. It is 0 if the file cannot be read twice.
    fn lines_that_end_at(&self, byte: u64) -> u64 {
        let (mut lines, mut at, mut piece) = (0, byte, [0; 64]);
        loop {
            let read = self.file.read_at(&mut piece, at).unwrap_or(0);
            let ends = piece[..read].iter().take_while(|byte| [b'\r', b'\n'].contains(byte));
            let (skipped, ended) =
                ends.fold((0, 0), |(skipped, ended), byte| (skipped + 1, ended + u64::from(*byte == b'\n')));
            (lines, at) = (lines + ended, at + skipped);
            if skipped < 64 {
                return lines;
            }
        }
    }
}

impl Read for Hashed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let len = self.file.read(buffer)?;
        let read = &buffer[..len];
        self.digest.write(read);
        let is_first = self.bytes == 0;
        if let Some((kind, fix)) = packed(read).filter(|_| is_first) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it is {kind} ({fix})")));
        }
        let text = if is_first { read.strip_prefix(b"\xef\xbb\xbf").unwrap_or(read) } else { read };
        let behind = self.quotes.follow(text);
        self.row_bytes = behind.unwrap_or(self.row_bytes + len);
        if self.row_bytes > MOST_ROW_BYTES {
            let text = format!(
                "a row of more than {} MiB (close its quotes, or put each row on a line of its own)",
                MOST_ROW_BYTES >> 20
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        self.bytes += u64::try_from(len).unwrap_or(0);
        self.is_at_end = len == 0;
        Ok(len)
    }
}

/// Detects a binary or UTF-16 file by its first bytes. Returns its type, and how to convert it.
fn packed(first: &[u8]) -> Option<(&'static str, &'static str)> {
    const UTF_16: &str = "save it as UTF-8, or `iconv -f UTF-16 -t UTF-8`";
    const KINDS: [(&[u8], &str, &str); 9] = [
        (b"\x1f\x8b", "compressed by gzip", "unpack it with `gunzip --keep` and name what comes out"),
        (b"\x28\xb5\x2f\xfd", "compressed by zstd", "unpack it with `unzstd` and name what comes out"),
        (b"\xfd7zXZ\0", "compressed by xz", "unpack it with `unxz --keep` and name what comes out"),
        (b"BZh91AY&SY", "compressed by bzip2", "unpack it with `bunzip2 --keep` and name what comes out"),
        (b"\x04\x22\x4d\x18", "compressed by lz4", "unpack it with `unlz4` and name what comes out"),
        (b"PK\x03\x04", "a ZIP archive or a spreadsheet", "unpack it, or save the table as CSV"),
        (b"PAR1\x15", "a Parquet file", "save the table as CSV"),
        (b"\xff\xfe", "text in UTF-16", UTF_16),
        (b"\xfe\xff", "text in UTF-16", UTF_16),
    ];
    KINDS.into_iter().find(|(magic, ..)| first.starts_with(magic)).map(|(_, kind, fix)| (kind, fix))
}

/// Tracks whether a quoted field is open. The CSV reader does not report this: it accepts the end of the file as the end of the field.
struct Quotes {
    separator: u8,
    are_open: bool,
    /// The byte before the next one; initially a line end.
    last: u8,
    /// Whether that byte is a quote that closed a field, so that a further quote would form an escaped pair.
    has_closed: bool,
}

impl Quotes {
    fn of(separator: u8) -> Self {
        Self { separator, are_open: false, last: b'\n', has_closed: false }
    }

    /// Processes the next bytes. Returns the number of bytes after the last row that ended in them, if one did.
    fn follow(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut closed = self.has_closed.then_some(0);
        let (mut ended, mut from) = (None, 0);
        let row_end = |from: usize, to: usize| {
            bytes[from..to].iter().rposition(|byte| matches!(byte, b'\n' | b'\r')).map(|at| from + at + 1)
        };
        for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte == b'"') {
            let before = if at == 0 { self.last } else { bytes[at - 1] };
            if !self.are_open {
                ended = row_end(from, at).or(ended);
            }
            from = at;
            if self.are_open {
                (self.are_open, closed) = (false, Some(at + 1));
            } else {
                self.are_open = closed == Some(at) || [self.separator, b'\n', b'\r'].contains(&before);
            }
        }
        if let Some(last) = bytes.last() {
            (self.last, self.has_closed) = (*last, !self.are_open && closed == Some(bytes.len()));
        }
        if !self.are_open {
            ended = row_end(from, bytes.len()).or(ended);
        }
        ended.map(|end| bytes.len() - end)
    }
}

/// The rows of a file.
pub(super) struct Rows {
    path: PathBuf,
    reader: csv::Reader<Hashed>,
    heads: Vec<String>,
    rows: u64,
}

impl Rows {
    /// Opens a file and reads its header.
    pub(super) fn open(path: &Path, delimiter: u8) -> Result<Self, ImportError> {
        let unreadable = |source| ImportError::Unreadable { path: path.to_owned(), source };
        let file = File::open(path).map_err(unreadable)?;
        let quotes = Quotes::of(delimiter);
        let hashed = Hashed { file, digest: DigestWriter::new(), bytes: 0, row_bytes: 0, quotes, is_at_end: false };
        let mut reader =
            csv::ReaderBuilder::new().delimiter(delimiter).buffer_capacity(1 << 18).flexible(true).from_reader(hashed);
        let record = reader.byte_headers().map_err(|error| unreadable(cause(error)))?;
        let heads = record.iter().map(|head| String::from_utf8_lossy(head).trim().to_owned()).collect();
        let line = 1 + lines_before_last(record);
        if reader.get_ref().is_unclosed() {
            let fault = RowFault { path: path.to_owned(), line, message: UNCLOSED.to_owned() };
            return Err(ImportError::Rows { faults: vec![fault], count: 1 });
        }
        Ok(Self { path: path.to_owned(), reader, heads, rows: 0 })
    }

    /// Returns the columns' names.
    pub(super) fn heads(&self) -> &[String] {
        &self.heads
    }

    /// Returns the index of a column. Case and signs in its name are ignored: `gpuSerial` matches `gpu_serial`.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        let plain = |name: &str| name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect();
        let wanted: String = plain(name);
        self.heads.iter().position(|head| head == name).or_else(|| {
            self.heads.iter().position(|head| {
                let head: String = plain(head);
                head == wanted
            })
        })
    }

    /// Like [`find`](Self::find), for a required column.
    pub(super) fn column(&self, name: &str) -> Result<usize, ImportError> {
        self.find(name).ok_or_else(|| ImportError::Column {
            path: self.path.clone(),
            column: name.to_owned(),
            columns: self.heads.clone(),
        })
    }

    /// Reads the next row. Returns false at the end. Refuses a row whose quote is still open at the end of the file: it
    /// may contain all following rows.
    pub(super) fn next(&mut self, record: &mut ByteRecord) -> Result<bool, ImportError> {
        let unreadable = |error| ImportError::Unreadable { path: self.path.clone(), source: cause(error) };
        let found = self.reader.read_byte_record(record).map_err(unreadable)?;
        if found && self.reader.get_ref().is_unclosed() {
            let fault = self.fault(record, UNCLOSED);
            let fault = RowFault { line: fault.line + lines_before_last(record), ..fault };
            return Err(ImportError::Rows { faults: vec![fault], count: 1 });
        }
        self.rows += u64::from(found);
        Ok(found)
    }

    /// Returns a fault of the row that was read last.
    pub(super) fn fault(&self, record: &ByteRecord, message: impl Into<String>) -> RowFault {
        RowFault { path: self.path.clone(), line: self.line(record), message: message.into() }
    }

    /// Returns the line on which the row that was read last begins, counted from 1.
    pub(super) fn line(&self, record: &ByteRecord) -> u64 {
        // The reader's position is the end of the previous row, before the second byte of its CRLF and before empty lines.
        record.position().map_or(0, |at| at.line() + self.reader.get_ref().lines_that_end_at(at.byte()))
    }

    /// Checks that the row that was read last has as many fields as the header.
    pub(super) fn whole(&self, record: &ByteRecord) -> Result<(), RowFault> {
        let (found, expected) = (record.len(), self.heads.len());
        if found == expected {
            Ok(())
        } else {
            // A record that is imported with `--skip-faulty` contains this text, so a change would change its id.
            Err(self.fault(record, format!("it has {found} fields, but the header has {expected}")))
        }
    }

    /// Returns the time in a field, in ns since 1970. The row must have as many fields as the header.
    pub(super) fn moment(&self, record: &ByteRecord, field: usize) -> Result<i64, RowFault> {
        self.whole(record)?;
        unix_ns(&record[field]).ok_or_else(|| {
            let (head, found) = (&self.heads[field], shown(&record[field]));
            self.fault(record, format!("{head} `{found}` is not a time (write it as 2018-11-08T08:18:55.510Z)"))
        })
    }

    /// Returns the source, after its end was read.
    pub(super) fn finish(self) -> Source {
        let Self { path, reader, rows, .. } = self;
        let Hashed { digest, bytes, .. } = reader.into_inner();
        Source { path, digest: digest.finish(), bytes, rows }
    }
}

const UNCLOSED: &str = "a quote is not closed, and includes all that follows (write a quote within quotes twice)";

/// Returns the number of line ends within a row's fields, except the last field.
fn lines_before_last(record: &ByteRecord) -> u64 {
    let fields = record.iter().take(record.len().saturating_sub(1));
    fields.flatten().map(|byte| u64::from(*byte == b'\n')).sum()
}

/// Returns the I/O error of a CSV error.
pub(super) fn cause(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(source) => source,
        other => io::Error::other(format!("{other:?}")),
    }
}

/// Returns a foreign text, shortened and without control characters, for a message.
pub(super) fn shown(field: &[u8]) -> String {
    const MOST: usize = 60;
    let text = String::from_utf8_lossy(field);
    let mut out: String = text.chars().take(MOST).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if text.chars().count() > MOST {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(content: impl AsRef<[u8]>) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), content).unwrap();
        file
    }

    #[test]
    fn rows_have_places_and_the_file_a_digest() {
        let text = "\u{feff}\"a name\",gpuSerial\r\n\"x, \"\"y\"\"\",007\n1,2,3\n";
        let file = file(text);
        let mut rows = Rows::open(file.path(), b',').unwrap();
        assert_eq!(rows.heads(), ["a name", "gpuSerial"]);
        assert_eq!((rows.find("GPU_serial"), rows.find("aname"), rows.find("b")), (Some(1), Some(0), None));
        assert!(
            rows.column("b").unwrap_err().to_string().ends_with("has no column `b` (there are: a name, gpuSerial)")
        );
        let mut record = ByteRecord::new();
        assert!(rows.next(&mut record).unwrap());
        assert_eq!((&record[0], &record[1]), (b"x, \"y\"".as_slice(), b"007".as_slice()));
        assert_eq!(rows.whole(&record), Ok(()));
        assert!(rows.next(&mut record).unwrap());
        let fault = rows.whole(&record).unwrap_err();
        assert_eq!((fault.line, fault.message.as_str()), (3, "it has 3 fields, but the header has 2"));
        assert!(!rows.next(&mut record).unwrap());
        let source = rows.finish();
        assert_eq!((source.digest, source.bytes), (Digest::of(text.as_bytes()), text.len() as u64));
        assert_eq!(source.rows, 2);
    }

    #[test]
    fn an_endless_row_is_refused_before_it_takes_all_memory() {
        let endless = |begin: &str| {
            let text = begin.to_owned() + &"x".repeat(MOST_ROW_BYTES + (1 << 19));
            let opened = Rows::open(file(text).path(), b',');
            let read = opened.and_then(|mut rows| rows.next(&mut ByteRecord::new()));
            read.map_err(|error| error.to_string())
        };
        for begin in ["", "a,b\n", "a,b\n1,\"\n2,3\n"] {
            assert!(endless(begin).unwrap_err().contains("a row of more than 16 MiB"), "{begin:?}");
        }
        let rows = "1,\"2\n\"\n".repeat((MOST_ROW_BYTES + (1 << 19)) / 7);
        let file = file(format!("a,b\n{rows}"));
        let mut rows = Rows::open(file.path(), b',').unwrap();
        let mut record = ByteRecord::new();
        while rows.next(&mut record).unwrap() {}
        assert!(rows.finish().rows > 2_000_000);
    }

    #[test]
    fn the_end_of_the_last_row_is_found() {
        let behind = |text: &str| Quotes::of(b',').follow(text.as_bytes());
        assert_eq!(behind("a,b"), None);
        assert_eq!(behind("a,b\n1"), Some(1));
        assert_eq!(behind("a,b\r"), Some(0));
        assert_eq!(behind("a,\"b\n1"), None, "within quotes a line is no row");
        assert_eq!(behind("a\n1,\"b\n1"), Some(6));
        assert_eq!(behind("a,\"b\n\"\n12"), Some(2));
    }

    #[test]
    fn a_faulty_row_has_its_line_however_lines_end() {
        let lines = |text: &str| {
            let file = file(text);
            let mut rows = Rows::open(file.path(), b',').unwrap();
            let (mut record, mut found) = (ByteRecord::new(), Vec::new());
            while rows.next(&mut record).unwrap() {
                found.extend(rows.whole(&record).err().map(|fault| fault.line));
            }
            found
        };
        assert_eq!(lines("a,b\n1\n1,2\n3\n"), [2, 4]);
        assert_eq!(lines("a,b\r\n1\r\n1,2\r\n3\r\n"), [2, 4]);
        assert_eq!(lines("\u{feff}a,b\r\n\"1\r\n1\",2\r\n3"), [4], "behind a field of two lines");
        assert_eq!(lines("a,b\n\n\n1\n\r\n\r\n3"), [4, 7], "empty lines are lines");
        assert_eq!(lines(&format!("a,b\r\n{}1\r\n", "\r\n".repeat(100))), [102]);
    }

    #[test]
    fn an_unclosed_quote_is_reported_with_its_line() {
        let faults = |text: &str| {
            let file = file(text);
            let mut rows = match Rows::open(file.path(), b';') {
                Ok(rows) => rows,
                Err(ImportError::Rows { faults, .. }) => return vec![(faults[0].line, faults[0].message == UNCLOSED)],
                Err(error) => panic!("{error}"),
            };
            let mut record = ByteRecord::new();
            loop {
                match rows.next(&mut record) {
                    Ok(true) => assert_eq!(rows.whole(&record), Ok(()), "{text:?}"),
                    Ok(false) => return Vec::new(),
                    Err(ImportError::Rows { faults, .. }) => {
                        return vec![(faults[0].line, faults[0].message == UNCLOSED)];
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        };
        assert_eq!(faults("a;b\n1;2\n\"3;4\n5;6\n"), [(3, true)]);
        assert_eq!(faults("a;b\n1;\"2\n"), [(2, true)], "though it has as many fields");
        assert_eq!(faults("a;b\n\"1\n1\";\"2\n\n"), [(3, true)], "not the line on which its row begins");
        assert_eq!(faults("a;b\n1;\"2\"\"\n"), [(2, true)]);
        assert_eq!(faults("a;b\n1;2\n\""), [(3, true)]);
        assert_eq!(faults("\"a;b\n1;2\n"), [(1, true)]);
        let sound =
            ["\u{feff}\"a;\";b\n1;2\n", "a;b\r\n\"\";\"\"\"x\"\"\"\r\n1\";2\"\n", "a;b\n\"1\";\"2\n\"", "a;b\n"];
        for text in sound {
            assert_eq!(faults(text), [], "{text:?}");
        }
        // The result does not depend on how the file is split while it is read.
        let text = b"\"a;\"\"\";b\n\"\"\"\"\"\";\"c";
        for cut in 0..text.len() {
            let mut quotes = Quotes::of(b';');
            [&text[..cut], &text[cut..]].iter().for_each(|piece| {
                let _ = quotes.follow(piece);
            });
            assert!(quotes.are_open, "{cut}");
            quotes.follow(b"\"");
            assert!(!quotes.are_open, "{cut}");
        }
    }

    #[test]
    fn binary_files_are_refused_with_their_type() {
        let said = |bytes: &[u8]| Rows::open(file(bytes).path(), b',').err().map(|error| error.to_string());
        for (bytes, kind) in [
            (b"\x1f\x8b\x08rest".as_slice(), "it is compressed by gzip (unpack it with `gunzip"),
            (b"\x28\xb5\x2f\xfd\x04", "compressed by zstd"),
            (b"PK\x03\x04\x14\0", "a ZIP archive or a spreadsheet (unpack it, or save the table as CSV)"),
            (b"PAR1\x15\x04", "a Parquet file"),
            (b"\xff\xfea\0", "it is text in UTF-16 (save it as UTF-8, or `iconv -f UTF-16 -t UTF-8`)"),
            (b"\xfe\xff\0a", "text in UTF-16"),
        ] {
            assert!(said(bytes).unwrap().contains(kind), "{:?}", said(bytes));
        }
        assert_eq!((said(b"PAR1,PK\n1,2\n"), said(b"BZ,h\n1,2\n")), (None, None), "text that begins alike");
    }

    #[test]
    fn many_faults_are_counted() {
        let mut faults = Faults::default();
        assert!(faults.first().is_none());
        (0..12).for_each(|line| faults.add(RowFault { path: "f".into(), line, message: "no".to_owned() }));
        let text = faults.check().unwrap_err().to_string();
        assert!(text.starts_with("f:0: no\nf:1: no\n") && text.ends_with("f:9: no\nand 2 more"), "{text}");
    }
}
